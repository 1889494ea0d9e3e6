"""The sphere of a policy's target: a user who drags it knows better than the topic."""

import asyncio
import math
from types import SimpleNamespace

import numpy as np
import pytest

from vdl_ros.view.target import DraggedTarget


class Scene:
    """The part of viser's scene that the target uses."""

    def add_transform_controls(self, name, **values):
        self.handle = SimpleNamespace(on_update=self._keep, **values)
        return self.handle

    def add_icosphere(self, name, **values):
        self.sphere = SimpleNamespace(**values)
        return self.sphere

    def _keep(self, callback):
        self._callback = callback

    def drag(self, *place, phase='update'):
        """Let a browser send this."""
        self.handle.position = place
        asyncio.run(self._callback(SimpleNamespace(phase=phase, target=self.handle)))


@pytest.fixture
def scene():
    return Scene()


@pytest.fixture
def target(scene):
    scene.now = 100.0
    return DraggedTarget(SimpleNamespace(scene=scene), lambda: scene.now)


def test_a_user_who_drags_it_knows_better_than_the_topic(scene, target):
    assert not scene.handle.visible
    scene.drag(0.1, 0.1, 0.1)
    assert target.dragged() is None, 'there is no policy yet'
    target.show(np.full(3, math.nan), False)
    assert scene.handle.visible
    assert scene.handle.position == (0.1, 0.1, 0.1)
    scene.drag(0.1, 0.1, 0.1, phase='start')
    assert target.dragged() is None
    # The newest place counts, once.
    scene.drag(0.1, 0.1, 0.1)
    scene.drag(0.2, 7.0, -7.0)
    assert target.dragged().tolist() == [0.2, 1.0, -1.0]
    assert target.dragged() is None
    scene.now += 2.0
    topic = np.array([0.3, 0.2, 0.1])
    target.show(topic, False)
    assert scene.handle.position == pytest.approx(topic)
    scene.drag(0.1, 0.1, 0.1)
    target.dragged()
    target.show(topic, True)
    assert scene.handle.position == (0.1, 0.1, 0.1)
    reached = scene.sphere.color
    scene.now += 2.0
    target.show(topic, False)
    assert scene.handle.position == pytest.approx(topic)
    assert scene.sphere.color != reached

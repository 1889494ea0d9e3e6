"""Appearance of the scene: each change shows in the next image."""

import math

import numpy as np
import pytest

from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation import appearance
from vdl_ros.arm.simulation.render import ArmRenderer, project
from vdl_ros.arm.simulation.scene import build_scene

ZERO = np.zeros(5)
# The lamp shines down on the table.
OVER_TABLE = np.array([0.0, 0.6, 0.9, 0.9, 0.3])
SIZE = (160, 120)


@pytest.fixture
def scene():
    return build_scene()


@pytest.fixture
def renderer(scene):
    with ArmRenderer(scene, *SIZE) as renderer:
        yield renderer


def around(image, pixel, radius):
    column, row = np.round(pixel).astype(int)
    return image[row - radius:row + radius + 1, column - radius:column + radius + 1].astype(int)


def test_lamp_lights_the_scene_and_its_lens(scene, renderer):
    dark = renderer.render(OVER_TABLE).copy()
    lit = renderer.render(OVER_TABLE, lamp=True).copy()
    np.testing.assert_array_equal(dark, renderer.render(OVER_TABLE))
    lamp = Kinematics(scene.geometry).pose(OVER_TABLE, 'lamp')
    # Where its ray meets the table.
    spot = lamp[:3, 3] - lamp[:3, 2] * lamp[2, 3] / lamp[2, 2]
    pixel = project(scene, spot, *SIZE)
    assert around(lit, pixel, 2).mean() > around(dark, pixel, 2).mean() + 15
    far = np.abs(lit[:, :15].astype(int) - dark[:, :15])
    assert far.max() < 25
    # The lens itself, seen from the front.
    appearance.place_camera(scene.model, 0.5, math.pi / 3, 0.0)
    low = [0.0, -0.6, 1.4, 0.6, 0.35]
    lens = project(scene, Kinematics(scene.geometry).pose(low, 'lamp')[:3, 3], *SIZE)
    dark, lit = renderer.render(low).copy(), renderer.render(low, lamp=True).copy()
    assert around(lit, lens, 2).max() > around(dark, lens, 2).max()


def test_every_material_can_be_coloured(scene, renderer):
    names = appearance.materials(scene.model)
    assert {'arm/yellow', 'arm/black', 'arm/grey', 'arm/pad', 'arm/lens', 'table',
            'floor'} == set(names)
    for name in names:
        pose = [0, -0.6, 1.4, 0.6, 0.35]
        appearance.place_camera(scene.model, 0.4, 0.9, 0.3)
        before = renderer.render(pose).copy()
        appearance.set_color(scene.model, name, [0.1, 0.1, 1.0], specular=0.1, shininess=0.9)
        after = renderer.render(pose).astype(int)
        changed = (after != before).any(axis=2)
        # The lens is a few pixels, and the floor behind the table's edge.
        assert changed.sum() > 2 or name == 'floor', name
        assert (after[changed][:, 2] > after[changed][:, 0]).all(), name


def test_every_light_can_be_changed(scene, renderer):
    assert set(appearance.lights(scene.model)) == {'key', 'fill', 'arm/lamp'}
    before = renderer.render(ZERO).copy()
    appearance.set_light(scene.model, 'key', active=False)
    dimmer = renderer.render(ZERO).copy()
    assert dimmer.mean() < before.mean() - 5
    appearance.set_light(scene.model, 'key', active=True)
    np.testing.assert_array_equal(before, renderer.render(ZERO))
    appearance.set_light(scene.model, 'key', rgb=[0.9, 0.2, 0.2])
    red = renderer.render(ZERO).astype(int)
    assert red[..., 0].mean() - red[..., 2].mean() > 10 + (
        before[..., 0].mean() - before[..., 2].mean())
    appearance.set_light(scene.model, 'fill', direction=[0, 0, -5], position=[0, 0, 1])
    assert scene.model.light('fill').dir == pytest.approx([0, 0, -1])
    appearance.set_headlight(scene.model, [1, 1, 1], [0.5, 0.5, 0.5])
    assert renderer.render(ZERO).mean() > red.mean() + 10


def test_unknown_names_are_refused(scene):
    model = scene.model
    for call in (lambda: appearance.set_color(model, 'arm/blue', [0, 0, 0]),
                 lambda: appearance.set_light(model, 'moon')):
        with pytest.raises(KeyError):
            call()


@pytest.mark.parametrize('place', [
    {'distance': 0.0}, {'distance': -1.0}, {'elevation': -0.1}, {'elevation': 1.2},
    {'distance': math.nan}, {'elevation': math.inf}, {'azimuth': math.nan}, {'roll': math.inf}],
    ids=str)
def test_invalid_placement_is_refused_and_changes_nothing(scene, place):
    name = next(iter(place))
    before = scene.model.body('arm/camera_mount').pos.copy()
    with pytest.raises(ValueError, match=f'^{name}: '):
        appearance.place_camera(
            scene.model, **{'distance': 0.7, 'elevation': 0.3, 'azimuth': 0.0, **place})
    assert scene.model.body('arm/camera_mount').pos.tolist() == before.tolist()


def test_invalid_values_are_refused(scene):
    model = scene.model
    for bad in ([1, 1], [math.nan, 0, 0], 'red', [[1, 1, 1]]):
        with pytest.raises(ValueError, match='rgb|three|red'):
            appearance.set_color(model, 'table', bad)
        with pytest.raises(ValueError, match='ambient|three|red'):
            appearance.set_headlight(model, bad, [0, 0, 0])
    with pytest.raises(ValueError, match='direction: 0 0 0 is not allowed'):
        appearance.set_light(model, 'key', direction=[0, 0, 0])


def test_one_scene_does_not_change_another(scene):
    other = build_scene(load())
    appearance.set_color(scene.model, 'table', [0, 0, 1])
    appearance.place_camera(scene.model, 1.0, 0.2, 1.0)
    assert other.model.mat('table').rgba[2] == 1.0
    assert other.model.body('arm/camera_mount').pos.tolist() != (
        scene.model.body('arm/camera_mount').pos.tolist())

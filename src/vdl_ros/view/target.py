"""
The target of a policy in the scene: a sphere that users drag, and that shows how near the arm is.

viser calls back in threads of its own; only the newest place is kept.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

__all__ = ['DraggedTarget']

Array = NDArray[np.float64]

#: Radius of the sphere, m: that of success.
RADIUS = 0.02
#: Farthest coordinate of a place, m; a browser may send any.
FARTHEST = 1.0
# Where it is before there was a target, m.
_START = (0.15, 0.10, 0.20)
# A user who has not moved it for this time does not drag it any more, s.
_HELD_S = 1.0
_OPEN, _REACHED = (232, 126, 4), (39, 174, 96)


class DraggedTarget:
    """The sphere; it is hidden until :meth:`show`, and its methods are called from one thread."""

    def __init__(
        self, server: viser.ViserServer, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Add it to the scene; ``clock`` returns s."""
        self._clock = clock
        self._places: collections.deque[Array] = collections.deque(maxlen=1)
        self._dragged_at = -_HELD_S
        self._server = server
        self._handle: Any = server.scene.add_transform_controls(
            '/target', scale=0.08, disable_rotations=True, depth_test=False, position=_START,
            translation_limits=((-FARTHEST, FARTHEST),) * 3, visible=False)
        self._sphere: Any = server.scene.add_icosphere(
            '/target/sphere', radius=RADIUS, color=_OPEN, opacity=0.6)

        async def moved(event: Any) -> None:
            if event.phase == 'update' and self._handle.visible:
                self._places.append(np.array(event.target.position, np.float64))

        self._handle.on_update(moved)

    def dragged(self) -> Array | None:
        """Return where a user has dragged it since the last call, float64 [3], m, or None."""
        if not self._places:
            return None
        place = self._places.pop()
        self._dragged_at = self._clock()
        return np.clip(place, -FARTHEST, FARTHEST)

    def show(self, place: Array, reached: bool) -> None:
        """
        Show the target, and whether the arm has reached it.

        Args:
            place: in ``base_link``, float64 [3], m; NaN: it stays where it is. A user who drags
                it knows better.
            reached: shown by its colour.
        """
        if not self._handle.visible:
            self._handle.visible = True
        held = self._clock() - self._dragged_at < _HELD_S
        if np.isfinite(place).all() and not held and not np.allclose(
                self._handle.position, place, atol=1e-4):
            self._handle.position = place
        color = _REACHED if reached else _OPEN
        if tuple(self._sphere.color) != color:
            self._sphere.color = color

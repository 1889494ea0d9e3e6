"""The 3D scene: the arm, a translucent ghost at the pose estimated by the camera, a table."""

from __future__ import annotations

import io
import logging
from typing import Any

import numpy as np
import viser
import yourdfpy
from viser.extras import ViserUrdf

from vdl_ros.arm.geometry import Positions, parse
from vdl_ros.arm.joints import JOINTS

# It warns of every joint without a commanded position.
logging.getLogger('yourdfpy').setLevel(logging.ERROR)

_GHOST = (0.25, 0.45, 0.95, 0.35)
_DOUBTFUL_GHOST = (0.55, 0.55, 0.60, 0.20)
# Smaller changes are not drawn, rad.
_VISIBLE_CHANGE = 1e-4


class ArmScene:
    """The scene in the browsers; only a table until there is a description."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._server = server
        scene = server.scene
        scene.set_up_direction('+z')
        scene.world_axes.visible = False
        # Without shadows: for an arm this small they detach from the ground.
        scene.add_grid('/table', width=1.2, height=1.2, cell_size=0.05, section_size=0.1,
                       cell_color=(222, 226, 232), section_color=(188, 194, 204),
                       plane_color=(246, 247, 250), plane_opacity=1.0, shadow_opacity=0.0)
        server.initial_camera.position = (0.44, -0.44, 0.34)
        server.initial_camera.look_at = (0.06, 0.03, 0.13)
        self._arm: _Drawn | None = None
        self._ghosts: dict[bool, _Drawn] = {}

    def set_description(self, urdf: str) -> None:
        """Show the arm of a URDF text; GeometryError: it is invalid, the old arm stays."""
        parse(urdf)
        for drawn in (self._arm, *self._ghosts.values()):
            if drawn is not None:
                drawn.root.remove()
        self._arm = _Drawn(self._server, urdf, '/arm', None)
        self._ghosts = {True: _Drawn(self._server, urdf, '/estimated', _GHOST),
                        False: _Drawn(self._server, urdf, '/doubtful', _DOUBTFUL_GHOST)}
        self.show_ghost(None)

    def show(self, positions: Positions) -> None:
        """Show the joints at ``positions``, float64 [5], rad; NaN: unchanged."""
        if self._arm is not None:
            self._arm.move(positions)

    def show_ghost(self, positions: Positions | None, confident: bool = True) -> None:
        """Show an estimate, float64 [5], rad; None hides it."""
        for kind, ghost in self._ghosts.items():
            shown = positions is not None and kind == confident
            if shown:
                ghost.move(np.asarray(positions))
            ghost.root.visible = shown


class _Drawn:
    """One arm in the scene, below the node ``root``."""

    def __init__(self, server: viser.ViserServer, urdf: str, name: str,
                 color: tuple[float, float, float, float] | None) -> None:
        robot = yourdfpy.URDF.load(io.BytesIO(urdf.encode()))
        self.root = server.scene.add_frame(name, show_axes=False)
        self._order = [JOINTS.index(name) for name in robot.actuated_joint_names]
        self._server = server
        # Slightly larger: surfaces of ghost and arm at the same place would flicker.
        self._drawn: Any = ViserUrdf(
            server, robot, root_node_name=name, mesh_color_override=color,
            scale=1.0 if color is None else 1.002)
        self._shown = np.full(len(JOINTS), np.inf)
        self.move(np.zeros(len(JOINTS)))

    def move(self, positions: Positions) -> None:
        wanted = np.where(np.isnan(positions), self._shown, positions)
        if np.abs(wanted - self._shown).max() >= _VISIBLE_CHANGE:
            self._shown = wanted
            with self._server.atomic():
                self._drawn.update_cfg(wanted[self._order])


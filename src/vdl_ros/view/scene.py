"""The 3D scene: the arm, a translucent ghost at the pose estimated by the camera, a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray
from viser import transforms

from vdl_ros.arm.geometry import CUBE_COLOUR, EDGE, ArmGeometry, Positions, Shape
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics

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
        self._cube: Any = None

    def set_geometry(self, geometry: ArmGeometry) -> None:
        """Show this arm instead of the one before."""
        for drawn in (self._arm, *self._ghosts.values()):
            if drawn is not None:
                drawn.root.remove()
        self._arm = _Drawn(self._server, geometry, '/arm', None)
        self._ghosts = {True: _Drawn(self._server, geometry, '/estimated', _GHOST),
                        False: _Drawn(self._server, geometry, '/doubtful', _DOUBTFUL_GHOST)}
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


    def show_cube(self, pose: NDArray[np.float64]) -> None:
        """Show the cube at a pose, float64 [7], m and a quaternion wxyz."""
        if self._cube is None:
            self._cube = self._server.scene.add_box(
                '/cube', dimensions=(EDGE, EDGE, EDGE), color=CUBE_COLOUR)
        if not np.allclose(pose, [*self._cube.position, *self._cube.wxyz], atol=1e-5):
            with self._server.atomic():
                self._cube.position, self._cube.wxyz = pose[:3], pose[3:]


class _Drawn:
    """One arm in the scene, below the node ``root``, with RGBA ``color`` instead of its own."""

    def __init__(self, server: viser.ViserServer, geometry: ArmGeometry, name: str,
                 color: tuple[float, float, float, float] | None) -> None:
        self._server, self._kinematics = server, Kinematics(geometry)
        self.root = server.scene.add_frame(name, show_axes=False)
        # Numbered: a name of the description may hold any letters.
        self._frames: dict[str, Any] = {}
        for index, shape in enumerate(geometry.shapes):
            if shape.link not in self._frames:
                self._frames[shape.link] = server.scene.add_frame(
                    f'{name}/link{len(self._frames)}', show_axes=False)
            self._add(f'{self._frames[shape.link].name}/{index}', shape, color)
        self._shown = np.full(len(JOINTS), np.inf)
        self.move(np.zeros(len(JOINTS)))

    def _add(self, name: str, shape: Shape,
             color: tuple[float, float, float, float] | None) -> None:
        red, green, blue, alpha = shape.color.tolist() if color is None else color
        # Slightly larger: surfaces of ghost and arm at the same place would flicker.
        scale = 1.0 if color is None else 1.002
        common: dict[str, Any] = {
            'color': (red, green, blue), 'opacity': None if alpha >= 1.0 else alpha,
            'wxyz': _wxyz(shape.origin), 'position': shape.origin[:3, 3], 'scale': scale}
        scene = self._server.scene
        if shape.kind == 'box':
            scene.add_box(name, dimensions=shape.size, **common)
        elif shape.kind == 'cylinder':
            radius, length = shape.size.tolist()
            scene.add_cylinder(name, radius=radius, height=length, **common)
        else:
            scene.add_icosphere(name, radius=float(shape.size[0]), **common)

    def move(self, positions: Positions) -> None:
        wanted = np.where(np.isnan(positions), self._shown, positions)
        if np.abs(wanted - self._shown).max() >= _VISIBLE_CHANGE:
            self._shown = wanted
            poses = self._kinematics.poses(wanted, self._frames)
            with self._server.atomic():
                for link, frame in self._frames.items():
                    frame.wxyz, frame.position = _wxyz(poses[link]), poses[link][:3, 3]


def _wxyz(pose: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(transforms.SO3.from_matrix(pose[:3, :3]).wxyz, np.float64)

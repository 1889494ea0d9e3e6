"""The SO-101 in MuJoCo: config/mujoco/so101.xml, which says where its figures are from."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.simulation.render import open_renderer
from vdl_ros.arm.simulation.scene import MAX_DEPTH, add_cube, cube_address
from vdl_ros.arm.simulation.simulation import START, PoseError, checked_cube
from vdl_ros.common.files import find_resource
from vdl_ros.common.quoting import quoted

Array = NDArray[np.float64]
Image = NDArray[np.uint8]


@functools.cache
def _model(cube: bool) -> Any:
    spec = mujoco.MjSpec.from_file(str(find_resource('config/mujoco/so101.xml')))
    if cube:
        add_cube(spec)
    return spec.compile()


@functools.cache
def _renderer() -> Any:
    # One for all twins: a process cannot have two contexts of OpenGL.
    return open_renderer(_model(True), 640, 480)


#: The joints in the order of the servos' numbers, 1 to 6.
JOINTS = ('shoulder_pan', 'shoulder_lift', 'elbow_flex', 'wrist_flex', 'wrist_roll', 'gripper')
#: As ros2_control names them: of github.com/JafarAbdi/ros2_so_arm100, so_arm101_description.
ROS_JOINTS = tuple(f'{name}_joint' for name in JOINTS)
#: Their limits, float64 [6], rad.
LOWER, UPPER = np.array(_model(False).jnt_range).T
# What feetech_ros2_driver 0.2.2 sends with each position: 2400 steps/s and 50 x 100 steps/s^2, of
# which a turn has 4096.
_SPEED, _ACCELERATION = 2400 * math.tau / 4096, 5000 * math.tau / 4096
# Of the servos' own control, two steps of the physics, s.
_PERIOD = 0.01


class SO101Twin:
    """One arm on its table.

    Its servos go on to the last position that they were sent, and hold it: a command that is old
    moves nothing further.
    """

    def __init__(self, cube: bool = False) -> None:
        self.model: Any = _model(cube)
        self._data: Any = mujoco.MjData(self.model)
        self._cube = cube_address(self.model)
        self._tool = self.model.site('tool').id
        self._arm = self.model.body_rootid[self.model.geom_bodyid] == self.model.body('base').id
        self.time = 0.0
        self._goals, self._speeds = np.zeros(len(JOINTS)), np.zeros(len(JOINTS))
        #: Where the servos were last sent, float64 [6], rad, and after how many periods.
        self.goals, self._periods = np.zeros(len(JOINTS)), np.zeros(len(JOINTS), int)
        self.reset({})

    @property
    def joint_positions(self) -> Array:
        """Of the joints, float64 [6], rad."""
        return np.array(self._data.qpos[:len(JOINTS)])

    @property
    def joint_velocities(self) -> Array:
        return np.array(self._data.qvel[:len(JOINTS)])

    @property
    def cube(self) -> Array | None:
        """The pose of the cube in ``base_link``, float64 [7], m and a quaternion wxyz."""
        return None if self._cube is None else np.array(self._data.qpos[self._cube])

    def reset(self, pose: Mapping[str, float], cube: Sequence[float] = START) -> None:
        """Place arm and cube, at rest; PoseError: not allowed, and nothing is changed.

        Args:
            pose: positions by joint, rad; others 0.
            cube: x, y, m, and its angle, rad; without one it is ignored.
        """
        positions = np.zeros(len(JOINTS))
        for name, value in pose.items():
            if name not in JOINTS:
                raise PoseError(f'{quoted(name)}: no such joint; there are {", ".join(JOINTS)}')
            index = JOINTS.index(name)
            if not LOWER[index] - 1e-6 <= value <= UPPER[index] + 1e-6:
                raise PoseError(f'{name}: {value:g} is not allowed: from {LOWER[index]:g} to '
                                f'{UPPER[index]:g}')
            positions[index] = value
        place = checked_cube(cube)
        before = np.array(self._data.qpos)
        if self._cube is not None:
            self._data.qpos[self._cube] = place
        self.tool_at(positions)
        if self.collides():
            self._data.qpos[:] = before
            mujoco.mj_forward(self.model, self._data)
            raise PoseError(f'pose: {quoted(dict(pose))} is not allowed: one in which the arm is '
                            'not inside table, cube or itself')
        placed = np.array(self._data.qpos)
        mujoco.mj_resetData(self.model, self._data)
        self._data.qpos[:], self._speeds[:] = placed, 0.0
        self._data.ctrl[:] = self._goals[:] = self.goals[:] = positions
        self._periods[:] = 0
        mujoco.mj_forward(self.model, self._data)

    def tool_at(self, positions: Array) -> Array:
        """Place the joints, float64 [6], rad; return the place of the tool, float64 [3], m."""
        self._data.qpos[:len(JOINTS)] = positions
        mujoco.mj_kinematics(self.model, self._data)
        return np.array(self._data.site_xpos[self._tool])

    def collides(self) -> bool:
        """Return whether a part of the arm is inside another one, or inside something else."""
        mujoco.mj_comPos(self.model, self._data)
        mujoco.mj_collision(self.model, self._data)
        contact = self._data.contact
        deep = contact.dist < -MAX_DEPTH
        return bool(self._arm[contact.geom[deep]].any())

    def command(self, positions: Array, seconds: float = 0.0) -> None:
        """Send the first servos positions, float64 [up to 6], rad; beyond limits they go there.

        They get them at once, or as a ramp of so many ``seconds``. Others, and those of NaN, go
        on as before.
        """
        sent = np.flatnonzero(np.isfinite(positions))
        self.goals[sent] = np.clip(np.asarray(positions)[sent], LOWER[sent], UPPER[sent])
        self._periods[sent] = round(seconds / _PERIOD)
        self._goals = np.where(self._periods, self._goals, self.goals)

    def step(self, seconds: float) -> None:
        """Simulate whole hundredths of a second; servos turn as fast as the driver lets them."""
        control, most = self._data.ctrl, _ACCELERATION * _PERIOD
        for _ in range(round(seconds / _PERIOD)):
            if self._periods.any():
                self._goals += (self.goals - self._goals) / np.maximum(self._periods, 1)
                self._periods -= self._periods > 0
            away = self._goals - control
            # As fast as it can still brake.
            wanted = np.sign(away) * np.minimum(_SPEED, np.sqrt(2.0 * _ACCELERATION * abs(away)))
            self._speeds += np.clip(wanted - self._speeds, -most, most)
            moved = self._speeds * _PERIOD
            is_there = (abs(away) <= abs(moved)) & (abs(self._speeds) <= 2.0 * most)
            control += np.where(is_there, away, moved)
            self._speeds[is_there] = 0.0
            mujoco.mj_step(self.model, self._data, 2)
            self.time += _PERIOD

    def render(self, target: Sequence[float] | Array | None = None) -> Image:
        """Return an image, uint8 [480, 640, 3], with a ball of the radius of success there."""
        renderer = _renderer()
        renderer.update_scene(self._data, camera='view')
        if target is not None:
            scene = renderer.scene
            mujoco.mjv_initGeom(
                scene.geoms[scene.ngeom], mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, 0.02),
                np.asarray(target, np.float64), np.eye(3).ravel(),
                np.array([0.1, 0.75, 0.2, 0.6], np.float32))
            scene.ngeom += 1
        image: Image = renderer.render()
        return image

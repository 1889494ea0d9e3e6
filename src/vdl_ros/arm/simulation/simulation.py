"""The simulated arm: MuJoCo, the arm of the URDF and on/off motors; stepped by its owner."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vdl_ros.arm.driver.usb import Signs, decode
from vdl_ros.arm.geometry import ArmGeometry, Positions
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.simulation.motor_model import GearMotors, SimulationConfig
from vdl_ros.arm.simulation.scene import (
    CollisionChecker,
    Scene,
    build_scene,
    cube_address,
    cube_pose,
)
from vdl_ros.common.quoting import quoted

# A simulation that is later or earlier does not catch up or wait, s of wall time; see Pacer.
_MAX_LAG_S = 0.2
#: Where the cube is at first, x, y, m, and its angle, rad; and how far it may be on each axis, m.
START = (0.2, 0.0, 0.0)
MAX_CUBE = 0.35


class PoseError(ValueError):
    """An impossible pose of the arm; the message names the joint and its limits."""


def pose_by_name(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    if len(names) != len(values) or len({*names}) != len(names):
        raise PoseError(f'pose: {len(names)} names and {len(values)} positions: one for each, no '
                        'name twice')
    return dict(zip(names, values, strict=True))


def checked_cube(cube: Sequence[float]) -> NDArray[np.float64]:
    """Return the pose, float64 [7], of a cube on the table at x, y, m, and an angle, rad."""
    if len(cube) != len(START) or not np.isfinite(cube).all() or (
            np.abs(cube[:2]).max() > MAX_CUBE):
        raise PoseError(f'cube: {quoted(list(cube))} is not allowed: x and y from '
                        f'{-MAX_CUBE:g} to {MAX_CUBE:g} m, and an angle in rad')
    return cube_pose(*cube)


class ArmSimulation:
    """The simulated arm.

    The same configuration, seed and calls give bitwise equal positions. ``scene.model`` and
    ``data`` are MuJoCo's, for adding objects and rendering.

    Args:
        seed: of speeds, and positions of the gears within their play.
        scene: instead of a new one of ``geometry``; its timestep is set.
    """

    def __init__(
        self, config: SimulationConfig | None = None, seed: int = 0,
        geometry: ArmGeometry | None = None, scene: Scene | None = None,
    ):
        self.config = config or SimulationConfig()
        self.scene = scene or build_scene(geometry)
        self.geometry = self.scene.geometry
        self.scene.model.opt.timestep = self.config.timestep
        self.data: Any = mujoco.MjData(self.scene.model)
        self._checker = CollisionChecker(self.scene)
        self._cube = cube_address(self.scene.model)
        self._random = np.random.default_rng(seed)
        self._stiffness = self.scene.stiffen(self.config.sag)
        given = np.array([getattr(self.config, f'{name}_speed') for name in JOINTS])
        # Before ``speed_variation``, rad/s.
        self._nominal_speed: Positions = np.where(given > 0.0, given, self.geometry.velocity)
        self._motors = GearMotors(
            self.config, self._nominal_speed, self.geometry.lower, self.geometry.upper,
            self.scene.load, self.geometry.effort / self._stiffness)
        self._steps = 0
        self._debt = 0.0
        self._queue: collections.deque[tuple[int, Motors]] = collections.deque()
        self._command = Motors()
        self.reset()

    @property
    def time(self) -> float:
        """Return the simulated time since construction, s; a reset does not change it."""
        return self._steps * self.config.timestep

    @property
    def requested_time(self) -> float:
        """Return the simulated time requested so far, s, fractions of a step included."""
        return self.time + self._debt

    @property
    def joint_positions(self) -> Positions:
        """True positions, float64 [5], rad; the gripper's is the angle of a finger."""
        return np.array(self.data.qpos[self.scene.qpos])

    @property
    def joint_velocities(self) -> Positions:
        """True velocities, float64 [5], rad/s."""
        return np.array(self.data.qvel[self.scene.dof])

    @property
    def cube(self) -> Positions | None:
        """Return the cube's pose in ``base_link``, float64 [7]: m, and a quaternion wxyz."""
        return None if self._cube is None else np.array(self.data.qpos[self._cube])

    def command(self, motors: Motors) -> None:
        """Set motors and lamp after ``command_delay``, until the next command."""
        delay = round(self.config.command_delay / self.config.timestep)
        self._queue.append((self._steps + delay, motors))

    def step(self, seconds: float) -> int:
        """Simulate ``seconds``; return the number of physics steps.

        Fractions of a step are kept for later calls, so that many short calls are as long as one.
        """
        self._debt += seconds
        count = int(self._debt / self.config.timestep + 1e-6)
        self._debt -= count * self.config.timestep
        for _ in range(count):
            self._step()
        return count

    def reset(
        self, pose: ArrayLike | Mapping[str, float] | None = None, cube: Sequence[float] = START,
    ) -> None:
        """Place arm and cube, at rest, motors and lamp off, and draw new speeds.

        Args:
            pose: resting positions, sag included, float64 [5], rad, or positions by name, others
                0; None is straight up. After a PoseError nothing is changed.
            cube: its place on the table, x, y in m, and its angle, rad; without one it is ignored.
        """
        before = self.scene.model.qpos0.copy()
        try:
            # The check for collisions has the cube there.
            self._place_cube(cube)
            positions = self._checked(pose)
        except PoseError:
            self.scene.model.qpos0[:] = before
            raise
        variation = self.config.speed_variation
        self._motors.speed = (
            self._nominal_speed * self._random.uniform(1 - variation, 1 + variation, len(JOINTS))
        ).tolist()
        play = self._random.uniform(-1.0, 1.0, len(JOINTS))
        mujoco.mj_resetData(self.scene.model, self.data)
        self.data.time = self.time
        self.scene.set_positions(self.data, positions)
        # The gears lead the joints by the sag.
        target = positions + self.data.qfrc_bias[self.scene.dof] / self._stiffness
        self._motors.place(target, play)
        self.data.ctrl[self.scene.actuators] = target
        mujoco.mj_forward(self.scene.model, self.data)
        self._queue.clear()
        self._command = Motors()

    def _step(self) -> None:
        while self._queue and self._queue[0][0] <= self._steps:
            _, self._command = self._queue.popleft()
        data, scene = self.data, self.scene
        if self._motors.step(self._command.values, data.qpos[scene.qpos].tolist(),
                             data.actuator_force[scene.actuators].tolist()):
            data.ctrl[scene.actuators] = self._motors.target
        mujoco.mj_step(scene.model, data)
        self._steps += 1

    def _place_cube(self, cube: Sequence[float]) -> None:
        if self._cube is not None:
            self.scene.model.qpos0[self._cube] = checked_cube(cube)

    def _checked(self, pose: ArrayLike | Mapping[str, float] | None) -> Positions:
        if isinstance(pose, Mapping):
            for name in pose:
                if name not in JOINTS:
                    raise PoseError(
                        f'{quoted(name)}: no such joint; there are {", ".join(JOINTS)}')
            pose = [pose.get(name, 0.0) for name in JOINTS]
        positions = np.array(self.geometry.upright if pose is None else pose, np.float64)
        if positions.shape != (len(JOINTS),):
            raise PoseError(f'pose: shape {positions.shape} is not ({len(JOINTS)},)')
        for name, value in zip(JOINTS, positions, strict=True):
            joint = self.geometry.joints[name]
            if not joint.lower - 1e-6 <= value <= joint.upper + 1e-6:
                raise PoseError(
                    f'{name}: {value:g} is not allowed: from {joint.lower:g} to {joint.upper:g}')
        self.check_collision(positions)
        return positions

    def check_collision(self, positions: Positions) -> None:
        """Raise PoseError if a part is inside another one at ``positions``, float64 [5], rad."""
        if found := self._checker.collision(positions):
            raise PoseError(f'pose: {found}')


class SimulatedLink:
    """The driver's ``Link`` to a simulated arm."""

    def __init__(self, simulation: ArmSimulation, signs: Signs) -> None:
        self._simulation, self._signs = simulation, signs

    def send(self, packet: bytes) -> None:
        self._simulation.command(decode(packet, self._signs))

    def close(self) -> None:
        """Do nothing: like the device, the arm keeps its last command."""


class Pacer:
    """Computes how much to simulate now.

    It is relative to one moment at which wall and simulated time agreed, so that errors do not
    add up. A simulation that falls behind by more than ``_MAX_LAG_S`` does not catch up: that
    moment is moved, and counted in ``resyncs``.
    """

    def __init__(self, real_time_factor: float = 1.0):
        self.real_time_factor = real_time_factor
        self.resyncs = 0
        self._wall: float | None = None
        self._sim = 0.0

    def sync(self, wall: float, sim: float) -> None:
        self._wall, self._sim = wall, sim

    def due(self, wall: float, sim: float) -> float:
        """Return how many seconds to simulate now, at ``sim`` simulated s."""
        if self._wall is None:
            self.sync(wall, sim)
            return 0.0
        behind = (wall - self._wall) * self.real_time_factor - (sim - self._sim)
        if abs(behind) > _MAX_LAG_S * self.real_time_factor:
            self.resyncs += 1
            self.sync(wall, sim)
            return 0.0
        return max(0.0, behind)

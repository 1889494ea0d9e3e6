"""
The kinematic twin: B simulated arms at once, without physics, for training.

Motors and gears are those of ``batched_motors.py``. Joints follow their gears by stiffness,
damping and gravity, without inertia. Nothing touches: the owner checks for collisions and calls
:meth:`KinematicTwin.hold`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.simulation.scene import Scene
from vdl_ros.arm.twins.batched_motors import SUBSTEPS, BatchedMotors
from vdl_ros.arm.twins.gravity import Gravity
from vdl_ros.arm.twins.history import MEMORY, History
from vdl_ros.arm.twins.twin_parameters import TwinParameters

__all__ = ['KinematicTwin']

Array = NDArray[np.float64]


class KinematicTwin:
    """
    B arms that are commanded together, once in each period.

    ``positions`` are the joints' true positions, float64 [B, 5], rad.
    """

    def __init__(
        self, scene: Scene, count: int, period: float = 0.1, memory: float = MEMORY,
    ) -> None:
        """
        Make ``count`` arms with nominal parameters, standing straight up, at rest.

        Args:
            scene: the arm's description, masses and loads; it is not simulated.
            count: number of arms, B.
            period: between two commands, s.
            memory: how far back positions are kept, s.
        """
        self.count = count
        self.period = period
        self._substep = period / SUBSTEPS
        self._gravity = Gravity(scene)
        self._lower, self._upper = scene.geometry.lower, scene.geometry.upper
        self._motors = BatchedMotors(scene, count, period)
        shape = (count, len(JOINTS))
        self.positions: Array = np.zeros(shape)
        #: Where the joints are at rest with the gears as they are.
        self._rest = np.zeros(shape)
        self._history = History(shape, self._substep, memory)
        upright = np.clip(self.positions, self._lower, self._upper)
        self.reset(np.arange(count), upright, np.zeros(shape), self._motors.parameters)

    @property
    def parameters(self) -> TwinParameters:
        """Return the parameters of the arms."""
        return self._motors.parameters

    def reset(
        self, rows: NDArray[np.intp], positions: Array, play: Array, parameters: TwinParameters,
    ) -> None:
        """
        Place arms at rest, motors off.

        Args:
            rows: which arms, int [N].
            positions: resting positions, sag included, float64 [N, 5], rad.
            play: of each motor within the play of its gear, float64 [N, 5], from -1 to 1.
            parameters: of the N arms.
        """
        self._motors.replace(rows, parameters)
        self.positions[rows] = self._rest[rows] = positions
        self._history.fill(rows, positions)
        # The gears lead the joints by the sag.
        target = positions + self._gravity(positions) * self._motors.compliance[rows]
        self._motors.place(rows, target, play)

    def step(self, directions: NDArray[np.integer]) -> None:
        """Command all motors, -1, 0 or 1, int [B, 5], and simulate one period."""
        angle = self._motors.command(directions)
        # About where the joints are in the middle of the period.
        torque = self._gravity(self.positions + 0.5 * angle.sum(axis=0))
        self._before = self.positions.copy(), self._motors.target.copy()
        angle *= self._motors.slowing(angle, torque)
        sag = torque * self._motors.compliance
        lag = self._motors.damping / self._motors.stiffness
        fade = np.exp(-self._substep / lag)
        q = self.positions
        for part in range(SUBSTEPS):
            # Exact for a gear that turns at a steady speed during the substep.
            rest = self._motors.turn(angle[part], q) - sag
            behind = (rest - self._rest) * (lag / self._substep)
            q = rest - behind + (q - self._rest + behind) * fade
            q = np.clip(q, self._lower, self._upper)
            self._rest = rest
            self._history.append(q)
        self.positions = q

    def hold(self, joints: NDArray[np.bool_]) -> None:
        """Put joints, bool [B, 5], and their gears back to before the last step; clutches slip."""
        positions, target = self._before
        for state in (self.positions, self._rest):
            np.copyto(state, positions, where=joints)
        self._history.overwrite(SUBSTEPS, positions, joints)
        self._motors.hold(joints, target)

    def positions_before(self, age: Array) -> Array:
        """Return the positions ``age`` ago, float64 [B, 5], rad; ``age`` is float64 [B], s."""
        return self._history.before(age)

"""Simulated arm: takes the same commands as the real arm and publishes its true joint angles.

Services: ``~/set_pose`` (vdl_ros/SetJointPositions), ``~/step`` (vdl_ros/StepSimulation).
"""

import math
import time

from vdl_ros.arm.driver.driver import SafetyConfig
from vdl_ros.arm.driver.guardian import Guard
from vdl_ros.arm.driver.usb import Signs
from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.scene import add_cube, build_scene
from vdl_ros.arm.simulation.simulation import ArmSimulation, SimulatedLink
from vdl_ros.ros.arm.arm_topics import ArmTopics
from vdl_ros.ros.arm.sim_node import SimNode
from vdl_ros.ros.node_settings import SimArmConfig
from vdl_ros.srv import StepSimulation

# Longest step of the simulation, s: the delay of commands, and the period of the watchdog.
TICK_S = 0.01
# The caller of ~/step waits for the whole step: an hour is a mistake.
MAX_STEP_S = 600.0
# Period of joint states, in simulated time, s.
_PERIOD_S = 1 / 60


class SimArmNode(SimNode):
    """Runs the simulated arm at the pace of the wall clock, or step by step."""

    NAME = 'sim_arm'
    SETTINGS = (SimArmConfig, SimulationConfig, SafetyConfig, GeometryConfig)
    _config: SimArmConfig
    _twin: ArmSimulation

    def __init__(self) -> None:
        super().__init__('arm/joint_states', JOINTS)
        self._joint_due = 0.0
        signs = Signs()
        self._topics = ArmTopics(
            self, self.settings(SafetyConfig), signs,
            lambda: SimulatedLink(self._twin, signs), Guard(),
            clock=lambda: self._twin.time, real_time=not self._config.stepped,
            values=lambda: {'simulated time': f'{self._twin.time:.3f} s',
                            'times fallen behind': self._pacer.resyncs})
        self._topics.driver.open()
        self._topics.driver.activate(held=not self._config.stepped)
        self.create_service(StepSimulation, '~/step', self._on_step)
        if self._config.stepped:
            self._publish()
        else:
            # Even with use_sim_time: this node publishes that time.
            self.every(TICK_S, self._keep_pace)
        self.get_logger().info('simulated arm ready')

    def make_twin(self) -> ArmSimulation:
        scene = build_scene(self.settings(GeometryConfig).load(),
                            furnish=add_cube if self._config.cube else None)
        twin = ArmSimulation(self.settings(SimulationConfig), scene=scene)
        twin.reset(self._config.pose)
        return twin

    def on_reset(self) -> None:
        self._topics.driver.forget()

    def stop(self) -> None:
        self._topics.stop()

    def _keep_pace(self) -> None:
        """Simulate the wall time that has passed since the last call."""
        due = self._pacer.due(time.monotonic(), self._twin.requested_time)
        self._advance(min(due, TICK_S * max(10.0, self._config.real_time_factor)))

    def _advance(self, seconds: float) -> None:
        """Simulate ``seconds``; tick the driver and publish on the way."""
        # Requested, not simulated time: a fraction of a step is simulated later.
        end = self._twin.requested_time + seconds
        while (left := end - self._twin.requested_time) > 1e-9:
            before = self._twin.time
            until_due = max(self._joint_due - before, self._twin.config.timestep)
            self._twin.step(min(TICK_S, left, until_due))
            if self._twin.time == before:
                continue
            self._topics.driver.tick()
            self._publish_time()
            if self._twin.time >= self._joint_due - 1e-9:
                # The next multiple of the period, so that the rate has no drift.
                self._joint_due = (math.floor(self._twin.time / _PERIOD_S + 1e-6) + 1) * _PERIOD_S
                self._publish()

    def _on_step(
        self, request: StepSimulation.Request, response: StepSimulation.Response,
    ) -> StepSimulation.Response:
        if not self._config.stepped:
            response.message = 'sim_arm runs in real time: start it with stepped:=true'
        elif not 0.0 <= request.seconds <= MAX_STEP_S:
            response.message = (f'seconds: {request.seconds:g} is not allowed: '
                                f'from 0 to {MAX_STEP_S:g}')
        else:
            self._advance(request.seconds)
            response.success = True
        response.time = self.stamp()
        return response


main = SimArmNode.main

"""Simulated arm: takes the same commands as the real arm and publishes its true joint angles.

Services: ``~/set_pose`` (vdl_ros/SetJointPositions), ``~/step`` (vdl_ros/StepSimulation).
"""

import math
import time
from collections.abc import Sequence
from typing import Any

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from vdl_ros.arm.driver.driver import SafetyConfig
from vdl_ros.arm.driver.guardian import Guard
from vdl_ros.arm.driver.usb import Signs
from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.scene import add_cube, build_scene
from vdl_ros.arm.simulation.simulation import (
    START,
    ArmSimulation,
    Pacer,
    PoseError,
    SimulatedLink,
    pose_by_name,
)
from vdl_ros.ros.arm.arm_topics import ArmTopics
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.joint_messages import pose_message
from vdl_ros.ros.node_settings import SimArmConfig, TwinConfig
from vdl_ros.srv import SetJointPositions, StepSimulation

# Longest step of the simulation, s: the delay of commands, and the period of the watchdog.
TICK_S = 0.01
# The caller of ~/step waits for the whole step: an hour is a mistake.
MAX_STEP_S = 600.0


class SimNode(BaseNode):
    """A simulated arm: joints, cube and time of ``_twin`` as messages; ``~/set_pose`` places both.

    Args:
        topic: of the joints, by the names ``joints``.
    """

    ENDS_BY_BUGS = True
    _config: TwinConfig
    _twin: Any

    def __init__(self, topic: str, joints: Sequence[str]) -> None:
        super().__init__()
        self._config, self._joints = self.settings(self.SETTINGS[0]), list(joints)
        self._twin = self.make_twin()
        self._pacer = Pacer(self._config.real_time_factor)
        self._states = self.pub(topic)
        self._cube: Publisher | None = self.pub('cube/pose') if self._config.cube else None
        self._time: Publisher | None = self.pub('/clock') if self._config.publish_clock else None
        self.create_service(SetJointPositions, '~/set_pose', self._on_set_pose)

    def make_twin(self) -> Any:
        raise NotImplementedError

    def _publish(self) -> None:
        header = Header(stamp=self.stamp(), frame_id='base_link')
        self._states.publish(JointState(
            header=header, name=self._joints, position=self._twin.joint_positions.tolist(),
            velocity=self._twin.joint_velocities.tolist()))
        if self._cube is not None:
            self._cube.publish(PoseStamped(header=header, pose=pose_message(self._twin.cube)))

    def _publish_time(self) -> None:
        if self._time is not None:
            self._time.publish(ClockMessage(clock=self.stamp()))

    def stamp(self) -> Time:
        """Return the time that this node publishes, if it does."""
        if not self._config.publish_clock:
            return super().stamp()
        nanoseconds = round(self._twin.time * 1e9)
        return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)

    def _on_set_pose(
        self, request: SetJointPositions.Request, response: SetJointPositions.Response,
    ) -> SetJointPositions.Response:
        try:
            self._twin.reset(
                pose_by_name(request.name, request.position), list(request.cube) or START)
        except PoseError as error:
            response.message = str(error)
            return response
        self.on_reset()
        self._publish()
        response.success = True
        return response

    def on_reset(self) -> None:
        """Forget what was before."""


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
        twin = ArmSimulation(self.settings(SimulationConfig), self._config.sim_seed, scene=scene)
        twin.reset(self._config.pose)
        return twin

    def on_reset(self) -> None:
        self._topics.driver.forget()

    def stop(self) -> None:
        """Switch the motors off and publish that on ``arm/motors_sent``."""
        self._topics.driver.close()

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
                period = 1.0 / self._config.joint_rate
                # The next multiple of the period, so that the rate has no drift.
                self._joint_due = (math.floor(self._twin.time / period + 1e-6) + 1) * period
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

"""The consent of a node that moves the arm, by the topics of the arm."""

from __future__ import annotations

from collections.abc import Callable

from std_msgs.msg import Empty

from vdl_ros.common.consent import Consent
from vdl_ros.common.quoting import shown
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.ros.arm.arm_topics import moves
from vdl_ros.ros.base_node import BaseNode

_UPDATE_S = 0.02


class ArmConsent(Consent):
    """Listens to ``arm/motors``, ``arm/emergency_stop_state`` and ``arm/viewer_alive``."""

    def __init__(
        self, node: BaseNode, withdrawn: Callable[[str, bool], None], *,
        yields_to_programs: bool = True, waits_for_driver: bool = False,
        viewer_timeout: float = 0.0,
    ) -> None:
        super().__init__(
            node.get_fully_qualified_name(), withdrawn, yields_to_programs=yields_to_programs,
            waits_for_driver=waits_for_driver, viewer_timeout=viewer_timeout)
        #: None before the driver's first message.
        self.stop_state: EmergencyStopState | None = None
        node.sub('arm/motors', self._on_motors)
        node.sub('arm/emergency_stop_state', self._on_stop_state)
        node.sub('arm/viewer_alive', self._on_viewer_alive)
        # By the steady clock: a simulated one may be slower, or stand still.
        node.every(_UPDATE_S, self.update)

    def _on_motors(self, message: MotorCommand) -> None:
        self.on_command(message.sender, moving=self.goes_on(message.sender) or moves(message),
                        for_lamp=message.lamp != 0)

    def _on_stop_state(self, message: EmergencyStopState) -> None:
        self.stop_state = message
        stamp = message.header.stamp
        # What names nobody is no release, but what the driver says.
        self.on_stop(message.engaged, message.neutral_required, (stamp.sec, stamp.nanosec),
                     '' if message.engaged or message.sender else shown(message.reason),
                     (message.commanded.sec, message.commanded.nanosec))

    def _on_viewer_alive(self, _: Empty) -> None:
        self.on_viewer_alive()

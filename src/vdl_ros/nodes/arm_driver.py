"""
The driver of the USB arm: a lifecycle node that sends what it is told, and stops when it is not.

Subscribes: ``arm/motors``, ``arm/emergency_stop``. Publishes: ``arm/motors_sent``,
``/diagnostics``, ``/statistics``. Configured, it holds the device with all motors off; active, it
obeys. Parameters: docs/nodes.md, or ``ros2 run vdl_ros arm_driver --help``.
"""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle_msgs.srv import ChangeState
from rclpy._rclpy_pybind11 import RCLError
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from vdl_ros.arm.driver.driver_config import SafetyConfig, UsbConfig
from vdl_ros.arm.driver.guardian import Guardian, GuardianError
from vdl_ros.arm.driver.usb import ArmUsbError, UsbArm, load_backend
from vdl_ros.common.settings import select
from vdl_ros.ros.arm.arm_topics import ArmTopics
from vdl_ros.ros.process import run_node, spin_node, take_settings
from vdl_ros.ros.process_config import ProcessConfig

SETTINGS = (UsbConfig, SafetyConfig, ProcessConfig)
# Watchdog, run times and reconnection are looked at so often, s.
TICK_S = 0.02
# Between two attempts to find an arm that was never there, s.
SEARCH_S = 0.5


class ArmDriverNode(LifecycleNode):
    """Gives an ``ArmDriver`` the USB device, a guardian, a clock and its states."""

    def __init__(self) -> None:
        """
        Begin unconfigured; with ``autostart`` look for the arm from the first spin on.

        Raises:
            ValueError: a parameter that cannot be used.
        """
        super().__init__('arm_driver')
        given, self.process = take_settings(self, *SETTINGS)
        usb = select(UsbConfig, given)
        backend = load_backend(usb.usb_backend)
        self._guardian = Guardian(usb.usb_product, usb.usb_backend, usb.usb_timeout)
        self._problem = ''
        self._topics = ArmTopics(
            self, select(SafetyConfig, given), usb.signs,
            lambda: UsbArm(usb.usb_product, backend, usb.usb_timeout), self._guardian,
            values=lambda: {'guardian': self._guardian.pid or 'none'})
        self._driver = self._topics.driver
        self._answer_every_transition()
        # Not the node's clock: motors have to stop though simulated time stands still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(TICK_S, self._driver.tick, clock=steady)
        self._search = self.create_timer(SEARCH_S, self._start, clock=steady)
        if usb.autostart:
            self._start()
        else:
            self._search.cancel()

    def stop(self) -> None:
        """Switch the motors off and let the device go, in whatever state."""
        if not self._driver.close():
            self.get_logger().error('the stop was not taken: left to the guardian')

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take the device, with all motors off."""
        try:
            self._driver.open()
        except (ArmUsbError, GuardianError) as error:
            # Said once, however often the search tries.
            if str(error) != self._problem:
                self._problem = str(error)
                self.get_logger().error(self._problem)
            return TransitionCallbackReturn.FAILURE
        self._problem = ''
        self.get_logger().info('the arm is there, motors off')
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Obey commands from now on."""
        self._driver.activate()
        self.get_logger().info('the arm obeys arm/motors')
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop, and obey nothing; a stop that is not taken is tried again by every tick."""
        self._driver.deactivate()
        return TransitionCallbackReturn.SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and let the device go."""
        self.stop()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and let the device go, for good."""
        self._search.cancel()
        self.stop()
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and let the device go; it can be configured again."""
        self.get_logger().error(f'a transition from {state.label} failed: motors off')
        self.stop()
        return TransitionCallbackReturn.SUCCESS

    def _start(self) -> None:
        """Configure and activate, once; somebody who did something else first is not disturbed."""
        if self._state_machine.current_state[1] != 'unconfigured':
            self._search.cancel()
        elif self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self._search.cancel()
            self.trigger_activate()

    def _answer_every_transition(self) -> None:
        """Refuse a transition that the state does not have; rclpy raises into the executor."""
        service = self._service_change_state
        change = service.callback

        def answer(request: ChangeState.Request,
                   response: ChangeState.Response) -> ChangeState.Response:
            # Whoever asks is told, again if need be.
            self._problem = ''
            try:
                return change(request, response)
            except RCLError:
                name = request.transition.label or request.transition.id
                self.get_logger().warning(
                    f'transition {name}: there is none from '
                    f'{self._state_machine.current_state[1]}')
                response.success = False
                return response

        service.callback = answer


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('arm_driver', ArmDriverNode, spin_node, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())

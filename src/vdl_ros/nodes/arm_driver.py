"""Driver of the USB arm: a lifecycle node that sends motor commands and stops without them.

Configured, it holds the device with all motors off; active, it follows commands.
"""

from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from vdl_ros.arm.driver.driver import SafetyConfig, UsbConfig
from vdl_ros.arm.driver.guardian import Guardian, GuardianError
from vdl_ros.arm.driver.sleep_inhibitor import SleepInhibitor
from vdl_ros.arm.driver.usb import ArmUsbError, UsbPort, load_backend
from vdl_ros.ros.arm.arm_topics import ArmTopics
from vdl_ros.ros.managed_node import ManagedNode

# Period of the checks of watchdog, run times and connection, s.
TICK_S = 0.02
# Time between two attempts to find an arm before the first success, s.
SEARCH_S = 0.5


class ArmDriverNode(ManagedNode):
    """Connects an ``ArmDriver`` to USB device, guardian, clock and lifecycle states."""

    NAME = 'arm_driver'
    SETTINGS = (UsbConfig, SafetyConfig)
    ENDS_BY_BUGS = True

    def __init__(self) -> None:
        super().__init__()
        usb = self.settings(UsbConfig)
        self._port = UsbPort(usb.usb_product, load_backend(usb.usb_backend), usb.usb_port)
        self._guardian = Guardian(usb.usb_product, usb.usb_backend, lambda: self._port.name)
        self._inhibitor = SleepInhibitor()
        self._problem = ''
        self._topics = ArmTopics(
            self, self.settings(SafetyConfig), usb.signs, self._port.open, self._guardian,
            values=lambda: {'port': self._port.name or 'none',
                            'guardian': self._guardian.pid or 'none',
                            'sleep inhibited': self._inhibitor.held})
        self._driver = self._topics.driver
        # Motors must stop even while simulated time stands still.
        self.every(TICK_S, self._driver.tick)
        self._search = self.every(SEARCH_S, self._start)
        if usb.autostart:
            self._start()
        else:
            self._search.cancel()

    def stop(self) -> None:
        """Switch the motors off and release the device, in any state."""
        if not self._topics.stop():
            self.get_logger().error('the device did not accept the stop: left to the guardian')
        self._inhibitor.end()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._port.release()
        try:
            self._driver.open()
        except (ArmUsbError, GuardianError) as error:
            # Logged once, however often the search tries.
            if str(error) != self._problem:
                self._problem = str(error)
                self.get_logger().error(self._problem)
            return TransitionCallbackReturn.FAILURE
        self._problem = ''
        self.get_logger().info(f'the arm at USB port {self._port.name} is connected, motors off')
        problem = self._inhibitor.start()
        if problem:
            self.get_logger().info(f'this machine may suspend while motors are on: {problem}')
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._driver.activate(held=True)
        self.get_logger().info('active: the arm follows arm/motors')
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and ignore commands; each tick repeats a stop that the device did not accept."""
        self._driver.deactivate()
        return TransitionCallbackReturn.SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.stop()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._search.cancel()
        self.stop()
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop and release the device; it can be configured again."""
        self.get_logger().error(f'a transition from {state.label} failed: motors off')
        self.stop()
        return TransitionCallbackReturn.SUCCESS

    def _start(self) -> None:
        """Configure and activate once, unless a user changed the state first."""
        if self.state != 'unconfigured':
            self._search.cancel()
        elif self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self._search.cancel()
            self.trigger_activate()

    def on_request(self) -> None:
        # A user's request logs the problem again.
        self._problem = ''


main = ArmDriverNode.main

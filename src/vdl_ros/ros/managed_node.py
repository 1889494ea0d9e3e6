"""The base of this package's lifecycle nodes."""

from lifecycle_msgs.srv import ChangeState
from rclpy._rclpy_pybind11 import RCLError
from rclpy.lifecycle import LifecycleNode

from vdl_ros.common.quoting import quoted
from vdl_ros.ros.base_node import BaseNode


class ManagedNode(BaseNode, LifecycleNode):
    """A node with lifecycle states; a transition that is not possible is answered and logged.

    rclpy would raise into the executor.
    """

    def __init__(self) -> None:
        super().__init__()
        service = self._service_change_state
        change = service.callback

        def answer(request: ChangeState.Request,
                   response: ChangeState.Response) -> ChangeState.Response:
            self.on_request()
            try:
                return change(request, response)
            except RCLError:
                name = request.transition.label or request.transition.id
                self.get_logger().warning(
                    f'transition {quoted(name)}: not possible from state {self.state}')
                response.success = False
                return response

        service.callback = answer

    @property
    def state(self) -> str:
        """Return the name of the lifecycle state."""
        found: str = self._state_machine.current_state[1]
        return found

    def on_request(self) -> None:
        """Take note that somebody requests a transition."""

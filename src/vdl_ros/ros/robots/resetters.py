"""How robots are brought to the start of an episode.

By a service, a trajectory, a policy, or a person.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from action_msgs.msg import GoalStatus
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionClient
from rclpy.node import Node
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import suggestion
from vdl_ros.play.policy_resetter import PolicyResetter
from vdl_ros.robots.contract import (
    Contract,
    ContractError,
    PolicyReset,
    ServiceReset,
    TrajectoryReset,
)
from vdl_ros.robots.episode import ResetError, Resetter
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import trajectory_message
from vdl_ros.ros.robots.message_fields import resolve_type

# Time to come to where the robot is, s.
_HOLD_S = 0.1
# Measurements of which the middle one says where it is, wrong ones among them.
_SEEN = 5

def check_reset(contract: Contract) -> None:
    if isinstance(contract.reset, PolicyReset):
        PolicyResetter(contract, contract.reset)
    if isinstance(contract.reset, ServiceReset):
        kind = resolve_type(
            f'{contract.name}.yaml: reset: service: type', contract.reset.type, 'srv')
        _request(contract, kind, np.random.default_rng(0))
        known = kind.Response.get_fields_and_field_types()
        if contract.reset.success and contract.reset.success not in known:
            raise ContractError(
                f'{contract.name}.yaml: reset: service: success: {contract.reset.success!r} is '
                f'not allowed: {kind.__name__}.Response has {", ".join(known)}')


def make_resetter(contract: Contract, node: Node, full: Callable[[str], str]) -> Resetter | None:
    """Return what resets one robot; ``full`` returns names with its namespace."""
    if isinstance(contract.reset, ServiceReset):
        return _ByService(contract, contract.reset, node, full)
    if isinstance(contract.reset, TrajectoryReset):
        if contract.reset.action:
            return _ByAction(contract.reset, node, full)
        return _ByTopic(contract.reset, node, full, contract.actions.sends_positions)
    if isinstance(contract.reset, PolicyReset):
        return PolicyResetter(contract, contract.reset)
    if isinstance(contract.reset, str):
        return _ByPerson(contract.reset, node)
    return None


class _ByService(Resetter):
    def __init__(
        self, contract: Contract, reset: ServiceReset, node: Node, full: Callable[[str], str],
    ) -> None:
        self._contract, self._reset = contract, reset
        self._type = resolve_type(contract.name, reset.type, 'srv')
        self._client = node.create_client(self._type, full(reset.name))
        self._random = np.random.default_rng()
        self._call: Any = None
        self._deadline = 0.0

    def begin(self, random: np.random.Generator) -> None:
        self._random, self._call = random, None
        self._deadline = time.monotonic() + self._reset.timeout

    def is_done(self, values: dict[str, float]) -> bool:
        if self._call is None:
            if self._client.service_is_ready():
                self._call = self._client.call_async(
                    _request(self._contract, self._type, self._random))
            elif time.monotonic() > self._deadline:
                raise ResetError(f'no service {self._client.srv_name}')
            return False
        if not self._call.done():
            if time.monotonic() > self._deadline:
                self._client.remove_pending_request(self._call)
                raise ResetError(f'no answer of {self._client.srv_name} within '
                                 f'{self._reset.timeout:g} s')
            return False
        response = self._call.result()
        if self._reset.success and not getattr(response, self._reset.success):
            reason = str(getattr(response, 'message', ''))
            raise ResetError(f'{self._client.srv_name} refused: {quoted(reason)}')
        return True

    def cancel(self) -> None:
        self._call = None


class _ByTrajectory(Resetter):
    """Waits until the features are at the end of a trajectory."""

    def __init__(self, reset: TrajectoryReset) -> None:
        self._reset = reset
        self._deadline = 0.0

    def begin(self, random: np.random.Generator) -> None:
        self._deadline = time.monotonic() + self._reset.timeout

    def _message(self) -> JointTrajectory:
        positions = self._reset.positions
        return trajectory_message([*positions], [[*positions.values()]], [self._reset.seconds])

    def _is_there(self, values: dict[str, float], nobody: str) -> bool:
        """Return whether it is there; ResetError: too late, because of ``nobody`` unless ''."""
        away = {name: abs(values[name] - wanted) for name, wanted in self._reset.positions.items()}
        if not nobody and all(each <= self._reset.tolerance for each in away.values()):
            return True
        if time.monotonic() > self._deadline:
            worst = max(away, key=lambda name: away[name])
            raise ResetError(nobody or f'{worst} is {away[worst]:.3g} from its place after '
                             f'{self._reset.timeout:g} s')
        return False


class _ByTopic(_ByTrajectory):
    """Publishes the trajectory; a robot that ``holds`` positions is stopped by one of these."""

    def __init__(
        self, reset: TrajectoryReset, node: Node, full: Callable[[str], str], holds: bool,
    ) -> None:
        super().__init__(reset)
        self._holds = holds
        self._seen = deque[list[float]](maxlen=_SEEN)
        self._publisher = qos.pub(node, 'arm/joint_trajectory', name=full(reset.topic))
        self._is_sent = False

    def begin(self, random: np.random.Generator) -> None:
        super().begin(random)
        self._is_sent = False
        self._seen.clear()

    def is_done(self, values: dict[str, float]) -> bool:
        where = [values[name] for name in self._reset.positions]
        # Not again while the robot is silent.
        if not self._seen or where != self._seen[-1]:
            self._seen.append(where)
        if not self._is_sent and self._publisher.get_subscription_count():
            self._is_sent = True
            self._publisher.publish(self._message())
        return self._is_there(
            values, '' if self._is_sent else f'nobody follows {self._publisher.topic_name}')

    def cancel(self) -> None:
        if not self._is_sent:
            return
        # One without points stops a controller of motors; one of positions refuses it. A wrong
        # measurement must not move the robot.
        where = np.nanmedian(self._seen, axis=0).tolist()
        self._publisher.publish(trajectory_message(
            [*self._reset.positions], [where], [_HOLD_S],
        ) if self._holds else JointTrajectory())


class _ByAction(_ByTrajectory):
    """Sends the trajectory as a goal.

    This package's ``arm_controller`` ends the goal of a process that was killed, others may not.
    """

    def __init__(self, reset: TrajectoryReset, node: Node, full: Callable[[str], str]) -> None:
        super().__init__(reset)
        self._name = full(reset.action)
        self._client = ActionClient(node, FollowJointTrajectory, self._name)
        # Goals whose cancel is not answered.
        self._ending = 0
        self._goal: Any = None
        self._handle: Any = None
        self._result: Any = None

    def begin(self, random: np.random.Generator) -> None:
        super().begin(random)
        self._goal = self._handle = self._result = None

    def is_done(self, values: dict[str, float]) -> bool:
        if self._goal is None and self._client.server_is_ready():
            self._goal = self._client.send_goal_async(
                FollowJointTrajectory.Goal(trajectory=self._message()))
        if self._handle is None and self._goal is not None and self._goal.done():
            self._handle = self._goal.result()
            if not self._handle.accepted:
                raise ResetError(f'{self._name} refused the trajectory')
            self._result = self._handle.get_result_async()
        if self._result is None or not self._result.done():
            return self._is_there(values, (
                f'nobody follows {self._name}' if self._handle is None else
                f'{self._name} did not end within {self._reset.timeout:g} s'))
        answer = self._result.result()
        if answer.status != GoalStatus.STATUS_SUCCEEDED:
            raise ResetError(f'{self._name}: {quoted(answer.result.error_string)}')
        return self._is_there(values, '')

    def cancel(self) -> None:
        if self._goal is not None:
            self._ending += 1
            self.is_ending = True
            # It may not be accepted yet.
            self._goal.add_done_callback(self._on_answered)

    def _on_answered(self, goal: Any) -> None:
        goal.result().cancel_goal_async().add_done_callback(self._on_canceled)

    def _on_canceled(self, _: Any) -> None:
        self._ending -= 1
        self.is_ending = self._ending > 0

    def close(self) -> None:
        self._client.destroy()


class _ByPerson(Resetter):
    by_hand = True

    def __init__(self, text: str, node: Node) -> None:
        self._text, self._log = text, node.get_logger().info
        self._waits = self._confirmed = False

    def begin(self, random: np.random.Generator) -> None:
        self._waits, self._confirmed = True, False
        self._log(f'{self._text}; then: ros2 run vdl_ros confirm')

    def is_done(self, values: dict[str, float]) -> bool:
        return self._confirmed

    def cancel(self) -> None:
        self._waits = False

    def confirm(self) -> bool:
        self._confirmed, self._waits = self._waits, False
        return self._confirmed


def _request(contract: Contract, kind: Any, random: np.random.Generator) -> Any:
    assert isinstance(contract.reset, ServiceReset)
    request = kind.Request(check_fields=True)
    for field, value in contract.reset.request.items():
        place = f'{contract.name}.yaml: reset: service: request: {field}'
        *parents, last = field.split('.')
        target = request
        for name in parents:
            target = getattr(target, name, None)
        known: dict[str, str] = getattr(target, 'get_fields_and_field_types', dict)()
        if last not in known:
            raise ContractError(f'{place}: no such field: {", ".join(known)}'
                                f'{suggestion(last, known)}')
        try:
            setattr(target, last, _drawn(random, value))
        except (AssertionError, TypeError, ValueError, KeyError):
            raise ContractError(f'{place}: {quoted(value)} is not allowed: {known[last]}, or '
                                '{uniform: [low, high]}') from None
    return request


def _drawn(random: np.random.Generator, value: Any) -> Any:
    if isinstance(value, dict):
        low, high = value['uniform']
        if len(value) > 1:
            raise ValueError
        drawn = random.uniform(low, high)
        return drawn.tolist() if isinstance(drawn, np.ndarray) else float(drawn)
    return value

"""How robots are brought to the start of an episode: by a service, a trajectory, or a person."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rclpy.node import Node
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import suggestion
from vdl_ros.robots.contract import Contract, ContractError, ServiceReset, TrajectoryReset
from vdl_ros.robots.session import ResetError, Resetter
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import trajectory_message
from vdl_ros.ros.robots.robot_topics import resolve_service

#: Service (std_srvs/Trigger) by which a person confirms that a robot was reset.
CONFIRM = 'robot/confirm'


def check_reset(contract: Contract) -> None:
    if isinstance(contract.reset, ServiceReset):
        kind = resolve_service(f'{contract.name}.yaml: reset: service: type', contract.reset.type)
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
        return _ByTrajectory(contract.reset, node, full)
    if isinstance(contract.reset, str):
        return _ByPerson(contract.reset, node, full)
    return None


class _ByService:
    def __init__(
        self, contract: Contract, reset: ServiceReset, node: Node, full: Callable[[str], str],
    ) -> None:
        self._contract, self._reset = contract, reset
        self._type = resolve_service(contract.name, reset.type)
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


class _ByTrajectory:
    """Publishes a trajectory, and waits until the features are at its end."""

    def __init__(self, reset: TrajectoryReset, node: Node, full: Callable[[str], str]) -> None:
        self._reset = reset
        self._publisher = qos.pub(node, 'arm/joint_trajectory', name=full(reset.topic))
        self._deadline = 0.0
        self._is_sent = False

    def begin(self, random: np.random.Generator) -> None:
        self._deadline, self._is_sent = time.monotonic() + self._reset.timeout, False

    def is_done(self, values: dict[str, float]) -> bool:
        reset = self._reset
        if not self._is_sent and self._publisher.get_subscription_count():
            self._is_sent = True
            self._publisher.publish(trajectory_message(
                list(reset.positions), [list(reset.positions.values())], [reset.seconds]))
        away = {name: abs(values[name] - wanted) for name, wanted in reset.positions.items()}
        if self._is_sent and all(each <= reset.tolerance for each in away.values()):
            return True
        if time.monotonic() > self._deadline:
            worst = max(away, key=lambda name: away[name])
            raise ResetError(
                f'{worst} is {away[worst]:.3g} from its place after {reset.timeout:g} s'
                if self._is_sent else f'nobody follows {self._publisher.topic_name}')
        return False

    def cancel(self) -> None:
        if self._is_sent:
            # One without points stops a controller.
            self._publisher.publish(JointTrajectory())


class _ByPerson:
    def __init__(self, text: str, node: Node, full: Callable[[str], str]) -> None:
        self._text, self._log = text, node.get_logger().info
        self._service = node.create_service(Trigger, full(CONFIRM), self._on_confirmed)
        self._waits = self._confirmed = False

    def begin(self, random: np.random.Generator) -> None:
        self._waits, self._confirmed = True, False
        self._log(f'{self._text}; then: ros2 run vdl_ros confirm')

    def is_done(self, values: dict[str, float]) -> bool:
        return self._confirmed

    def cancel(self) -> None:
        self._waits = False

    def _on_confirmed(
        self, request: Trigger.Request, response: Trigger.Response,
    ) -> Trigger.Response:
        response.success = self._waits
        response.message = 'the episode begins' if self._waits else 'nobody waits for this'
        self._confirmed, self._waits = self._waits, False
        return response


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

"""What a policy that plays decides, as messages, and how to compute it again from a bag."""

import math
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from std_msgs.msg import Header

from vdl_ros.bags.messages import decode, stamp_of
from vdl_ros.bags.reader import BagReader
from vdl_ros.common.quoting import shown
from vdl_ros.envs.env_config import ROBOT
from vdl_ros.msg import Observation
from vdl_ros.play.robot_policy import Act, open_robot_policy
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.messages.tensors import from_tensors, to_tensors
from vdl_ros.ros.robots.robot_env import register_robot

_TYPE = 'vdl_ros/msg/Observation'
# Characters of a robot's name, and of a policy's path.
_MAX_NAME = 300


class Decisions:
    """Publishes the decisions of a policy for the robots of a contract; ``policy`` is its file."""

    def __init__(self, node: BaseNode, act: Act, env_id: str, policy: str) -> None:
        self._node, self._act = node, act
        self._env_id, self._policy = env_id, policy
        self._start, self._step = secrets.randbits(63), 0
        self._publisher = node.pub('decisions')

    def act(
        self, observations: NDArray[Any], is_reset: NDArray[np.bool_], rewards: NDArray[Any],
    ) -> NDArray[Any]:
        stamp = self._node.stamp()
        actions = self._act(observations, is_reset, rewards)
        self._publisher.publish(Observation(
            header=Header(stamp=stamp), actor_id=self._env_id, start_id=self._start,
            step=self._step, learner_id=self._policy, tensors=to_tensors({
                'observation': observations, 'is_reset': is_reset, 'reward': rewards,
                'action': actions})))
        self._step += 1
        return actions


class Difference(NamedTuple):
    """The first decision of a robot that another policy does not make.

    Attributes:
        robot: its number among the copies of the contract.
        at: seconds after the first decision in the bag.
        decided, computed: its action, and that of the policy.
        ages: by topic of the contract, how long before the decision the latest message came
            to who recorded both, s; NaN: there was none.
    """

    step: int
    robot: int
    at: float
    decided: NDArray[Any]
    computed: NDArray[Any]
    ages: dict[str, float]


class Replay(NamedTuple):
    """What came out: of ``decisions`` the ``skipped`` ones depend on what came before."""

    env_id: str
    policy: str
    decisions: int
    skipped: int
    difference: Difference | None


class _Decision(NamedTuple):
    message: Any
    arrays: dict[str, NDArray[Any]]
    ages: dict[str, float]


def replay(bag: Path, policy: Path) -> Replay:
    """Compute the decisions in a bag again, by a policy of that robot, to the first difference.

    ValueError: there are none, or the policy is of another robot; one line.
    """
    env_id = used = ''
    count = skipped = 0
    first, start, step = 0, None, -1
    for decision in _decisions(bag):
        message = decision.message
        stamp, arrays = stamp_of(message), decision.arrays
        if not count:
            env_id, used = (shown(each, _MAX_NAME)
                            for each in (message.actor_id, message.learner_id))
            first = stamp
            contract = find_contract(env_id.removeprefix(ROBOT))
            register_robot(contract, '', threading.Event())
        count += 1
        batch = len(arrays['is_reset'])
        if message.start_id != start or message.step != step + 1:
            # What a policy with a state has seen before is not known.
            found = open_robot_policy(policy, contract)
            known = np.full(batch, not found.has_state)
        start, step = message.start_id, message.step
        known |= arrays['is_reset']
        try:
            computed = found.act(arrays['observation'], arrays['is_reset'], arrays['reward'])
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f'{bag}: decision {step} is not one of {policy}: '
                             f'{shown(str(error))}') from None
        skipped += not known.all()
        for robot in np.flatnonzero(known):
            decided = arrays['action'][robot]
            if not np.array_equal(decided, computed[robot]):
                ages = {topic.topic: _age(decision.ages, topic.topic)
                        for topic in contract.inputs.values()}
                return Replay(env_id, used, count, skipped, Difference(
                    step, int(robot), (stamp - first) * 1e-9, decided, computed[robot], ages))
    if not count:
        raise ValueError(f'{bag} has no decisions of play: no topic decisions')
    return Replay(env_id, used, count, skipped, None)


def _decisions(bag: Path) -> Iterator[_Decision]:
    latest: dict[str, int] = {}
    for message in BagReader(bag):
        if message.type != _TYPE or not message.topic.endswith('/decisions'):
            latest[message.topic] = message.stamp_ns
            continue
        try:
            found = decode(message.data, _TYPE)
            arrays = from_tensors(found.tensors)
            batch = len(arrays['is_reset'])
            if arrays['is_reset'].dtype != bool or any(
                    not arrays[name].ndim or len(arrays[name]) != batch
                    for name in ('observation', 'is_reset', 'reward', 'action')):
                raise ValueError('tensors of several lengths')
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f'{bag}: {message.topic}: no decision of play: '
                             f'{shown(str(error))}') from None
        # By the bag alone: all of its times are those of one process.
        yield _Decision(found, arrays, {
            topic: (message.stamp_ns - at) * 1e-9 for topic, at in latest.items()})


def _age(ages: dict[str, float], topic: str) -> float:
    """Return the age of the topic's latest message, s; NaN without one."""
    return min((age for name, age in ages.items()
                if f'/{name}'.endswith(f'/{topic.lstrip("/")}')), default=math.nan)

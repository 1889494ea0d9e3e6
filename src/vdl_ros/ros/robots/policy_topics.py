"""A policy of another program, which acts by topics of ``play``: docs/external_policies.md."""

import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from std_msgs.msg import String

from vdl_ros.common.settings import SettingError
from vdl_ros.common.stopped import EnvStopped
from vdl_ros.play.external_policy import Answer, Chunks, Told
from vdl_ros.robots.contract import Contract
from vdl_ros.robots.session import Seen
from vdl_ros.ros.base_node import BaseNode

OBSERVATION, ACTION = 'play/observation', 'play/action'
# Time between looks for an end, between warnings, and until a silent program is asked again, s.
_LOOK_S, _WARN_S, _AGAIN_S = 0.02, 5.0, 1.0
# Of the contract's time for an action, of which the robot's clock may have begun earlier.
_SHARE = 0.8
# Latest answers whose delays are kept.
_ANSWERS = 100


class PolicyTopics:
    """Asks the program for actions, and acts by its answers.

    Without an action for a step it waits nearly as long as the contract does (``late: limit``),
    and then takes the neutral one. The executor's thread receives, the robots' thread asks for the
    :meth:`problem`, and the thread that plays acts.

    Args:
        has_ended: whether :meth:`act` is to raise EnvStopped.
        horizon, ensemble: of :class:`Chunks`; without an answer for the ``horizon`` the program
            counts as gone.

    Attributes:
        delays: steps from an observation to its answer, of the latest ones.
        has_acted: whether this program has answered, since :meth:`begin`.
        rests: whether the latest action is the neutral one, for want of another.
    """

    def __init__(
        self, node: BaseNode, contract: Contract, has_ended: Callable[[], bool], horizon: float,
        ensemble: float,
    ) -> None:
        if contract.copies > 1:
            raise SettingError(f'policy: external is not allowed with {contract.env_id}: its '
                               f'contract has {contract.copies} copies, and it moves one')
        self._node, self._contract, self._has_ended = node, contract, has_ended
        self._images = {each.name: node.resolve_topic_name(contract.full(each.topic, 0))
                        for each in contract.images}
        self._chunks, self._horizon = Chunks(contract.rate, horizon, ensemble), horizon
        # The latest observation, and when the first one without an answer was published, and the
        # latest one.
        self._told = String()
        self._count = 0
        self.begin()
        self._step, self._is_first = 0, True
        self.delays: deque[int] = deque(maxlen=_ANSWERS)
        self._received = threading.Condition()
        self._publisher = node.pub(OBSERVATION)
        self._subscription = node.sub(ACTION, self._on_action)

    def begin(self) -> None:
        """Forget the program: it may have gone while the node was inactive."""
        self._start = secrets.token_hex(4)
        self._waits_since, self._told_at = math.inf, -math.inf
        self.has_acted, self.rests = False, True

    def _on_action(self, message: String) -> None:
        name, rows = Answer.read(message.data, self._contract)
        if not name.startswith(self._start):
            return  # of an observation before this start
        with self._received:
            begin = self._chunks.answer(name, rows)
            if begin is not None:
                self.delays.append(self._step - begin)
                self._is_first = False
            self._waits_since, self.has_acted = math.inf, True
            self._received.notify()

    def problem(self, at_rest: Seen | None) -> str:
        """Return why nobody acts, or ''; a program that is silent is asked once more.

        So is one of which nothing is wanted while the robot waits or is reset, for the first of an
        episode: a process that was killed is known to DDS for 20 s. Nothing begins before it has
        answered.
        """
        topic, now = self._subscription.topic_name, time.monotonic()
        programs = self._subscription.get_publisher_count()
        if programs > 1:
            return f'{programs} programs publish {topic}: one is allowed'
        if not programs:
            # Whoever comes was not asked yet.
            self._waits_since = math.inf
            return f'no program takes {self._publisher.topic_name} and answers on {topic}'
        is_silent = now - self._waits_since > self._horizon
        if now - self._told_at >= _AGAIN_S:
            # Not one question after the other to a slow program: it would miss the first one of
            # the episode.
            if at_rest is not None and self._waits_since == math.inf:
                self._count += 1
                self._tell(now, Told.at_rest(
                    self._contract, f'{self._start}.r{self._count}', self._images, *at_rest))
            elif is_silent or not self.has_acted:
                self._tell(now)
        if is_silent:
            return f'the program has not answered on {topic} for {self._horizon:g} s'
        return '' if self.has_acted else f'the program has not answered on {topic} yet'

    def _tell(self, now: float, told: Told | None = None) -> None:
        """Publish an observation, or the latest one again."""
        if told is not None:
            self._told = String(data=msgspec.json.encode(told).decode())
            self._waits_since = min(self._waits_since, now)
        self._told_at = now
        self._publisher.publish(self._told)

    def act(
        self, observations: NDArray[Any], is_reset: NDArray[np.bool_], rewards: NDArray[Any],
    ) -> NDArray[Any]:
        """Return the action [1, ...] for an observation of ``make_measured_task``, [1, ...]."""
        actions = self._contract.actions
        found = self._ask(observations[0], bool(is_reset[0]))
        self.rests = found is None
        chosen = actions.chosen(np.nan_to_num(actions.neutral) if found is None else found)
        return chosen[:, 0] if actions.is_discrete and len(actions.parts) == 1 else chosen

    def _ask(self, observation: NDArray[Any], is_first: bool) -> NDArray[np.float64] | None:
        name = f'{self._start}.{self._count}'
        self._count += 1
        begun = time.monotonic()
        with self._received:
            if is_first:
                self._chunks.clear()
            # Until it has answered one of this episode: a slow program does not see each.
            self._is_first |= is_first
            told = Told.of(observation, self._contract, name, self._is_first, self._images)
            self._step = step = self._chunks.ask(name, told.time)
        self._tell(begun, told)
        limit = _SHARE * self._contract.late.limit
        with self._received:
            while (found := self._chunks.at(step)) is None:
                if self._has_ended():
                    raise EnvStopped('the process ends')
                if time.monotonic() - begun >= limit:
                    self._node.get_logger().warning(
                        f'no action within {limit:g} s: the neutral one{self._advice()}',
                        throttle_duration_sec=_WARN_S)
                    break
                self._received.wait(_LOOK_S)
        return found

    def _advice(self) -> str:
        if not self.delays:
            return ''
        return (f'; answers come up to {max(self.delays)} steps later: at least '
                f'{max(self.delays) + 1} actions in each are needed')

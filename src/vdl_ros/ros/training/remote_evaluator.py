"""The evaluator of a run on the graph: policies go out, evaluations come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rclpy.node import Node

from vdl_ros.common.quoting import quoted
from vdl_ros.msg import Evaluation as EvaluationMessage
from vdl_ros.msg import Policy
from vdl_ros.rl.acting.evaluation import Evaluation
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.learning.evaluations import EvaluatedPolicy, Result
from vdl_ros.ros import qos
from vdl_ros.ros.messages.episodes import from_episode
from vdl_ros.ros.training.trajectories import to_policy

__all__ = ['RemoteEvaluator']

# Results that may wait; more than are under way.
_QUEUE = 16


class RemoteEvaluator:
    """
    Publishes policies on ``evaluated_policy``, and takes results from ``evaluations``.

    The executor's thread receives; the training thread calls all methods.
    """

    def __init__(
        self, node: Node, learner_id: str, config: str, num_episodes: int,
        warn: Callable[[str], None],
    ) -> None:
        """
        Publish and subscribe.

        Args:
            node: the learner's node.
            learner_id: see :func:`make_learner_id`; results for another one are ignored.
            config: JSON: every setting of environment and training.
            num_episodes: episodes of an evaluation.
            warn: called with one line for each result that is refused.
        """
        self._node, self._learner_id, self._config = node, learner_id, config
        self._num_episodes, self._warn = num_episodes, warn
        self._messages: deque[EvaluationMessage] = deque(maxlen=_QUEUE)
        self._policies = node.create_publisher(
            Policy, 'evaluated_policy', qos.TOPICS['evaluated_policy'])
        self._subscription = node.create_subscription(
            EvaluationMessage, 'evaluations', self._on_evaluation, qos.TOPICS['evaluations'])

    def _on_evaluation(self, message: EvaluationMessage) -> None:
        if message.learner_id == self._learner_id:
            self._messages.append(message)

    @property
    def present(self) -> bool:
        """Whether an evaluator is on the graph."""
        return bool(self._node.count_publishers(self._subscription.topic_name))

    def start(self, policy: EvaluatedPolicy) -> None:
        """Publish a policy; an evaluator takes the newest when it is done with another."""
        self._policies.publish(to_policy(
            policy.weights, stamp=self._node.get_clock().now(), learner_id=self._learner_id,
            version=policy.version, agent_steps=policy.agent_steps, config=self._config,
            flow_stats=FlowStats()))

    def take(self) -> Result | None:
        """Return a result that was not returned before, if there is one."""
        while self._messages:
            message = self._messages.popleft()
            try:
                return self._result(message)
            except ValueError as error:
                self._warn(f'evaluation refused: {error}')
        return None

    def _result(self, message: EvaluationMessage) -> Result:
        """
        Return the result in a message.

        Raises:
            ValueError: the message is malformed.
        """
        if message.problem:
            return Result(message.agent_steps, None, quoted(message.problem, 200))
        if len(message.episodes) != self._num_episodes:
            raise ValueError(f'episodes: {len(message.episodes)} is not {self._num_episodes}')
        return Result(message.agent_steps, Evaluation(tuple(map(from_episode, message.episodes))))

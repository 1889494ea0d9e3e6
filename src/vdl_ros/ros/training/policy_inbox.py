"""The policies on one topic, of which an actor takes those of one learner."""

from __future__ import annotations

from rclpy.node import Node

from vdl_ros.common.quoting import quoted
from vdl_ros.msg import Policy
from vdl_ros.rl.acting.learner_choice import LearnerChoice
from vdl_ros.ros import qos
from vdl_ros.ros.statistics.topic_statistics import TopicStatistics

__all__ = ['PolicyInbox']


class PolicyInbox:
    """
    Subscribes to policies and keeps the newest one.

    Attributes:
        choice: which learner's policies are taken.
        last_error: of the last policy that was refused; it is logged once.
    """

    def __init__(self, node: Node, topic: str, patience: float) -> None:
        """
        Subscribe.

        Args:
            node: the node.
            topic: such as ``policy``.
            patience: silence after which another learner is taken, s.
        """
        self.choice, self.last_error = LearnerChoice(patience), ''
        self._node = node
        self._policy: Policy | None = None
        self._other_policy: Policy | None = None
        self._statistics = TopicStatistics(node, topic)
        self._subscription = node.create_subscription(
            Policy, topic, self.put, qos.TOPICS['policy'])

    @property
    def topic(self) -> str:
        """Full name of the topic."""
        return str(self._subscription.topic_name)

    def put(self, message: Policy) -> None:
        """Take a message of the topic."""
        self._statistics.received(message.header.stamp)
        if self.choice.is_over(message.learner_id):
            return
        if self._allows(message):
            self._policy, other = message, self._other_policy
            # That of another learner is kept: it may be latched, and not be published again.
            if other is not None and other.learner_id == message.learner_id:
                self._other_policy = None
            return
        # Its learner may be the new one of a training whose old one is not yet known to be gone.
        self._other_policy = message
        if self.choice.is_new(message.learner_id):
            self._node.get_logger().warning(
                f'another learner, {quoted(message.learner_id)}, publishes on '
                f'{self.topic}: its policies are ignored while the first one '
                'is active; give each training a namespace or a domain')

    def _allows(self, message: Policy) -> bool:
        return self.choice.allows(
            message.learner_id, self._node.count_publishers(self._subscription.topic_name))

    def take(self) -> Policy | None:
        """Return the newest policy if it was not taken before."""
        if self._other_policy is not None and self._allows(self._other_policy):
            self._policy, self._other_policy = self._other_policy, None
        message, self._policy = self._policy, None
        return message

    def refuse(self, error: ValueError) -> None:
        """Log why a policy cannot be used, once although it is published again."""
        if str(error) != self.last_error:
            self.last_error = str(error)
            self._node.get_logger().error(f'policy refused, waiting for another: {error}')

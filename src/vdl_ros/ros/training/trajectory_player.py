"""Send the trajectories of a bag to a learner, in the order of the bag, within their credit."""

import threading
from collections.abc import Iterator

from rclpy.duration import Duration
from rclpy.executors import Executor
from rclpy.node import Node
from rclpy.serialization import deserialize_message

from vdl_ros.bags.reader import BagError, BagReader
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import select
from vdl_ros.msg import LearnerBusy, Policy, Trajectory
from vdl_ros.rl.acting.flow_control import Credit, launch_of
from vdl_ros.rl.settings import ActorConfig, TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.process import call_back
from vdl_ros.ros.training.messages import policy_config

_TYPE = 'vdl_ros/msg/Trajectory'
_WAIT_S = 0.05
_ACK_S = 60.0


class LearnerLostError(RuntimeError):
    """The learner has started again, without the trajectories that it had."""


class TrajectoryPlayer:
    """Takes the place of the actors of a recorded training.

    Each recorded actor has the credit that it had as an actor, so nothing is lost however slow
    the learner is. Sequence numbers are counted again; policy versions stay as recorded, and the
    stamp is the time of sending.
    """

    def __init__(self, node: Node, bag: BagReader) -> None:
        self._node, self._bag = node, bag
        if next(self._messages(), None) is None:
            raise BagError(f'{bag.path} holds no trajectories: those of a training with '
                           'inference:=actor are recorded by record:=BAG')
        self._learner_id, self._train = '', TrainConfig()
        self._restarted = False
        self._credits: dict[int, Credit] = {}
        # Per start_id: numbers seen and the last one, as recorded.
        self._recorded: dict[int, tuple[int, int]] = {}
        self._publisher = qos.pub(node, 'trajectories')
        qos.sub(node, 'policy', self._on_policy)
        qos.sub(node, 'learner_busy', self._on_busy)

    @property
    def missing(self) -> int:
        """Trajectories that the actors sent, by their numbers, and the bag does not hold."""
        return sum(last + 1 - count for count, last in self._recorded.values())

    def play(self, stop: threading.Event, executor: Executor) -> tuple[int, bool]:
        """Send all trajectories, until ``stop`` or the learner's end: how many, and whether all.

        Raises BagError, or LearnerLostError if the learner has started again.
        """
        count = 0
        for number, data in self._messages():
            try:
                message = deserialize_message(data, Trajectory)
            except Exception as error:  # rclpy's, of no class of its own
                raise BagError(f'{self._bag.path}: trajectory {number} cannot be read: '
                               f'{quoted(str(error), 80)}') from None
            if not self._wait_for_credit(message.start_id, stop, executor):
                return count, False
            seen, _ = self._recorded.get(message.start_id, (0, 0))
            self._recorded[message.start_id] = seen + 1, message.sequence
            message.header.stamp = self._node.get_clock().now().to_msg()
            message.learner_id = self._learner_id
            message.sequence = self._credits[message.start_id].spend()
            self._publisher.publish(message)
            count += 1
        # Until the learner has them: this node's end ends the run.
        self._publisher.wait_for_all_acked(Duration(seconds=_ACK_S))
        return count, True

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        return enumerate(message.data for message in self._bag if message.type == _TYPE)

    def _wait_for_credit(self, start_id: int, stop: threading.Event, executor: Executor) -> bool:
        call_back(executor, 0.0)
        while not self._may_send(start_id):
            has_ended = self._learner_id and not self._node.count_publishers(
                self._node.resolve_topic_name('policy'))
            if stop.is_set() or has_ended:
                return False
            call_back(executor, _WAIT_S)
            if self._restarted:
                raise LearnerLostError(
                    'the learner has started again and lacks trajectories: start anew')
            credit = self._credits.get(start_id)
            if credit is not None and credit.is_lost:
                # Recorded in another order than its learner got them, so that this one waits for
                # an update that waits for the next ones.
                credit.write_off()
        return True

    def _may_send(self, start_id: int) -> bool:
        if not self._learner_id or not self._publisher.get_subscription_count():
            return False
        if start_id not in self._credits:
            credit = self._credits[start_id] = Credit(
                self._train.credit, self._train.batch_size, ActorConfig.credit_timeout)
            credit.on_policy(self._learner_id, None)
        return self._credits[start_id].available

    def _on_policy(self, message: Policy) -> None:
        """Take the credits of the first learner that waits for a bag."""
        if not self._learner_id:
            try:
                config = policy_config(message)
                if config.get('relearn'):
                    self._train = select(TrainConfig, config)
                    self._learner_id = message.learner_id
            except ValueError as error:
                self._node.get_logger().warning(f'policy refused: {error}')
        if message.learner_id != self._learner_id:
            self._restarted |= bool(self._learner_id) and (
                launch_of(message.learner_id) == launch_of(self._learner_id))
            return
        used = {credit.start_id: credit.used for credit in message.credits}
        for start_id, credit in self._credits.items():
            credit.on_policy(message.learner_id, used.get(start_id), message.version,
                             len(message.credits))

    def _on_busy(self, message: LearnerBusy) -> None:
        """Wait longer: the learner has what it needs for its update."""
        if message.learner_id == self._learner_id and not message.start_ids:
            for credit in self._credits.values():
                credit.on_busy()

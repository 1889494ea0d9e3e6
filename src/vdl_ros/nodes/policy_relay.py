"""Publish the policies of the network once more for the actors of this host.

So each policy crosses the network once for the host, not once for each of its actors.
"""

from rclpy.publisher import Publisher

from vdl_ros.msg import Policy
from vdl_ros.rl.acting.flow_control import launch_of
from vdl_ros.ros import qos
from vdl_ros.ros.base_node import BaseNode

_LOOK_S = 0.5
_MAX_TRAININGS = 8


class PolicyRelayNode(BaseNode):
    """Relays ``policy`` to ``relayed_policy``, with a publisher for each training.

    Actors count publishers: one that leaves tells them that its training is gone.
    """

    NAME = 'policy_relay'

    def __init__(self) -> None:
        super().__init__()
        # By training; the one heard last at the end.
        self._latest: dict[str, Policy] = {}
        self._relayed: dict[str, Publisher] = {}
        self._policies = self.sub('policy', self._on_policy, qos.LATCHED_OF_ALL)
        self.every(_LOOK_S, self._look)

    def _on_policy(self, message: Policy) -> None:
        training = launch_of(message.learner_id) or message.learner_id
        self._latest.pop(training, None)
        self._latest[training] = message
        self._relay(training)
        if len(self._latest) > _MAX_TRAININGS:
            oldest = next(iter(self._latest))
            del self._latest[oldest]
            if publisher := self._relayed.pop(oldest, None):
                self.destroy_publisher(publisher)

    def _relay(self, training: str) -> None:
        if training not in self._relayed:
            self._relayed[training] = qos.pub(self, 'policy', name='relayed_policy')
        self._relayed[training].publish(self._latest[training])

    def _look(self) -> None:
        """Have as many publishers as the graph knows: it may know of one after its messages."""
        trainings = list(self._latest)
        count = min(self.count_publishers(self._policies.topic_name), len(trainings))
        gone, there = trainings[:len(trainings) - count], trainings[len(trainings) - count:]
        for training in there:
            if training not in self._relayed:
                self._relay(training)
        for training in self._relayed.keys() & {*gone}:
            self.destroy_publisher(self._relayed.pop(training))


main = PolicyRelayNode.main

"""The node policy_relay: what actors of its host receive, and of how many trainings."""

from vdl_ros.msg import Policy
from vdl_ros.nodes.policy_relay import PolicyRelayNode
from vdl_ros.ros import qos


def test_actors_receive_each_policy_and_count_the_trainings_that_are_there(node_here, peer):
    node_here(PolicyRelayNode)
    found = peer.listen(Policy, 'relayed_policy', qos.LATCHED_OF_ALL)
    count = lambda: peer.node.count_publishers('relayed_policy')  # noqa: E731
    one, other = (qos.pub(peer.node, 'policy') for _ in range(2))
    one.publish(Policy(learner_id='a/1', version=7))
    peer.until(lambda: {each.version for each in found} == {7}, 'a policy')
    # Another start of a learner in its launch takes its place.
    one.publish(Policy(learner_id='a/2', version=8))
    other.publish(Policy(learner_id='b/1', version=9))
    peer.until(lambda: {each.version for each in found} == {7, 8, 9}, 'all')
    peer.until(lambda: count() == 2, 'a publisher for each training')
    peer.node.destroy_publisher(one)
    peer.until(lambda: count() == 1, 'its end')
    # What is latched is the policy of the training that is left.
    late = peer.listen(Policy, 'relayed_policy', qos.LATCHED_OF_ALL)
    peer.until(lambda: late, 'what is latched')
    assert {each.version for each in late} == {9}

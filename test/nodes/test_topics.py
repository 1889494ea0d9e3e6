"""The node topics: a table of what there is on the graph."""

import pytest
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from vdl_ros.nodes import topics
from vdl_ros.ros import qos


@pytest.mark.parametrize(('patterns', 'names'), [
    ((), ['/arm/joint_states', '/talk']), (('nothing',), [])])
def test_it_shows_type_rate_and_age_of_the_topics_that_match(run_here, peer, patterns, names):
    states = qos.pub(peer.node, 'arm/joint_states')
    latched = peer.node.create_publisher(String, 'talk', qos.LATCHED)
    latched.publish(String(data='once'))

    def say():
        message = JointState()
        message.header.stamp = peer.node.get_clock().now().to_msg()
        states.publish(message)

    # On a busy machine the first look may be too short to find or to count them.
    for seconds in ('2', '8', '32'):
        words = [*patterns, '--seconds', seconds]
        with peer.saying(say):
            status, output = run_here(lambda args, words=words: topics.main([*words, *args]))
        rows = {line.split()[0]: line.split()[1:] for line in output.splitlines()[1:]}
        own = {name: row for name, row in rows.items() if name in ('/arm/joint_states', '/talk')}
        if sorted(own) == names and '0.0' not in own.get('/arm/joint_states', ()):
            break
    assert (status, sorted(own)) == (0 if names else 1, names), output
    if not names:
        assert output == 'no topic matches\n'
        return
    kind, publishers, subscribers, rate, age = own['/arm/joint_states']
    assert (kind, publishers, subscribers) == ('sensor_msgs/JointState', '1', '0')
    assert float(rate) > 0.0
    assert float(age) >= 0.0
    assert own['/talk'] == ['std_msgs/String', '1', '0', '0.0', '-']

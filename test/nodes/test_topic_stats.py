"""The node topic_stats: reports on /statistics appear in its table."""

import os
import re

import pytest
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint

from vdl_ros.nodes import topic_stats
from vdl_ros.ros import qos

AGES = ((1, 3.0), (3, 9.0), (4, 2.0), (5, 8.0))


def report(source, metric='message_age', unit='ms', points=AGES, stop=2):
    message = MetricsMessage(
        measurement_source_name=source, metrics_source=metric, unit=unit,
        statistics=[StatisticDataPoint(data_type=kind, data=value) for kind, value in points])
    message.window_stop.sec = stop
    return message


GOOD = (report('/team/learner:trajectories'),
        report('/team/learner:trajectories', 'message_loss', 'messages', ((5, 4.0),)),
        report('/actor_0:policy'))
BAD = (report('/actor_0:policy', points=()), report('/x:y', points=((5, float('nan')),)),
       report(''), report('/x:y', 'cpu', 'percent'), MetricsMessage(),
       report('/\x1b[2Jbad:' + 'policy' * 100, points=((77, 1.0), (5, 1e15)), stop=-5))


@pytest.fixture
def publish(peer):
    """Return a function that publishes reports."""
    publisher = qos.pub(peer.node, '/statistics')
    return lambda *messages: [publisher.publish(each) for each in messages]


def cells(output, topic):
    return next(line.split() for line in output.splitlines() if line.startswith(topic))


def test_once_prints_one_table_and_ends(run_here, peer, publish):
    with peer.saying(lambda: publish(*GOOD, *BAD)):
        status, output = run_here(topic_stats.main, 'once:=true', 'period:=1.0', 'wait:=120.0')
    assert status == 0, output
    assert len(re.findall('^topic', output, re.MULTILINE)) == 1
    trajectories = cells(output, '/team/trajectories')
    assert trajectories[1:6] == ['/team/learner', '4.0', '3.00', '2.00', '9.00']
    assert int(trajectories[6]) >= 8
    assert trajectories[7] == '4'
    assert cells(output, '/policy')[1] == '/actor_0'
    assert cells(output, '/policy')[7] == '-'
    assert re.search(r'^/policypolicy\S+\.\.\.  /\?\[2Jbad ', output, re.MULTILINE)
    assert re.search(r'^\d+ reports left out', output, re.MULTILINE)
    assert '\x1b' not in output
    status, output = run_here(topic_stats.main, 'once:=true', 'wait:=0.2')
    assert (status, output) == (
        1, 'nothing to show from /statistics: is a training or arm.launch.py running?\n')


def test_tables_of_the_chosen_topics_are_printed_until_the_pipe_is_closed(
        node_here, peer, publish, monkeypatch):
    source, sink = os.pipe()
    with (os.fdopen(source) as lines, os.fdopen(sink, 'w') as output,
          monkeypatch.context() as patch):
        patch.setattr('sys.stdout', output)
        running = node_here(topic_stats.TopicStatsNode, 'topics:=policy', 'period:=0.1')
        # Thread times on the same topic do not count as malformed reports.
        with peer.saying(every=0.2, say=lambda: publish(
                *GOOD, report('/actor_0', 'time_acting_step', 'share', ((1, 0.5),)))):
            text = ''
            while text.count('/actor_0') < 3:
                text += lines.readline()
        lines.close()
        peer.until(lambda: not running.is_running, 'the end')
        # What the interpreter writes when it exits.
        print(file=output, flush=True)
    assert running.end() == 0
    assert running.output == ''
    assert 'trajectories' not in text

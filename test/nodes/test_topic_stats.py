"""The topic_stats process: reports on /statistics appear in its table."""

import contextlib
import os
import pty
import re

import pytest
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint

from vdl_ros.ros import qos

COMMAND = ('ros2', 'run', 'vdl_ros', 'topic_stats', '--ros-args', '-p')


AGES = ((1, 3.0), (3, 9.0), (4, 2.0), (5, 8.0))


def report(source, metric='message_age', unit='ms', points=AGES, stop=2):
    message = MetricsMessage(
        measurement_source_name=source, metrics_source=metric, unit=unit,
        statistics=[StatisticDataPoint(data_type=kind, data=value) for kind, value in points])
    message.window_stop.sec = stop
    return message


@pytest.fixture
def publish_until(peer):
    """Return a function that publishes reports repeatedly until a condition holds."""
    publisher = peer.node.create_publisher(
        MetricsMessage, '/statistics', qos.TOPICS['/statistics'])

    def until(condition, what, *messages):
        peer.until(condition, what, every=0.2,
                   say=lambda: [publisher.publish(each) for each in messages])
    return until


GOOD = (report('/team/learner:trajectories'),
        report('/team/learner:trajectories', 'message_loss', 'messages', ((5, 4.0),)),
        report('/actor_0:policy'))
BAD = (report('/actor_0:policy', points=()), report('/x:y', points=((5, float('nan')),)),
       report(''), report('/x:y', 'cpu', 'percent'), MetricsMessage(),
       report('/\x1b[2Jbad:' + 'policy' * 100, points=((77, 1.0), (5, 1e15)), stop=-5))


def cells(output, topic):
    return next(line.split() for line in output.splitlines() if line.startswith(topic))


def test_once_prints_one_table_and_ends(launch, publish_until):
    process = launch(*COMMAND, 'once:=true', '-p', 'period:=0.5')
    publish_until(lambda: process.process.poll() is not None, 'the end', *GOOD, *BAD)
    assert process.process.returncode == 0, process.output
    assert len(re.findall('^topic', process.output, re.MULTILINE)) == 1
    trajectories = cells(process.output, '/team/trajectories')
    assert trajectories[1:6] == ['/team/learner', '4.0', '3.00', '2.00', '9.00']
    assert int(trajectories[6]) >= 8
    assert trajectories[7] == '4'
    assert cells(process.output, '/policy')[1] == '/actor_0'
    assert cells(process.output, '/policy')[7] == '-'
    assert re.search(r'^/policypolicy\S+\.\.\.  /\?\[2Jbad ', process.output, re.MULTILINE)
    assert re.search(r'^\d+ reports left out', process.output, re.MULTILINE)
    assert '\x1b' not in process.output
    assert 'Traceback' not in process.output


def test_tables_are_printed_repeatedly_for_the_chosen_topics(launch, publish_until):
    process = launch(*COMMAND, 'topics:=policy', '-p', 'period:=0.2')
    # Thread times on the same topic do not count as malformed reports.
    publish_until(lambda: process.output.count('/actor_0') > 2, 'three tables', *GOOD,
        report('/actor_0', 'time_acting_step', 'share', ((1, 0.5),)))
    process.interrupt()
    assert process.wait() == 0, process.output
    assert 'trajectories' not in process.output
    assert 'left out' not in process.output
    assert 'Traceback' not in process.output


def test_without_reports_the_status_is_1(launch):
    process = launch(*COMMAND, 'once:=true', '-p', 'wait:=0.2')
    assert process.wait() == 1
    assert process.output == (
        'nothing to show from /statistics: is a training or arm.launch.py running?\n')


def test_a_closed_pipe_ends_the_process(launch, publish_until):
    process = launch('sh', '-c', f'{" ".join(COMMAND)} period:=0.1 | head -n 2')
    publish_until(lambda: process.process.poll() is not None, 'the end', *GOOD)
    assert process.process.returncode == 0
    assert 'Error' not in process.output


def test_a_terminal_is_overwritten_in_place(launch, publish_until):
    leader, follower = pty.openpty()
    process = launch('sh', '-c', f'exec {" ".join(COMMAND)} period:=0.2 >{os.ttyname(follower)}')
    os.set_blocking(leader, False)
    shown = b''

    def drawn():
        nonlocal shown
        with contextlib.suppress(BlockingIOError):
            shown += os.read(leader, 65536)
        return shown.count(b'/actor_0') > 2 and b'\x1b[3A\r\x1b[J' in shown

    publish_until(drawn, 'a table over a table', *GOOD)
    process.interrupt()
    assert process.wait() == 0
    os.close(leader)
    os.close(follower)

"""A run's scalars are of its own topics, since they were last asked for."""

import math

import pytest
from statistics_msgs.msg import MetricsMessage

from vdl_ros.ros import qos
from vdl_ros.ros.statistics.statistics_reader import AGE, LOSS, PERIOD, Window
from vdl_ros.ros.statistics.topic_scalars import TopicScalars, scalars
from vdl_ros.ros.statistics.topic_statistics import RunningStatistic, TopicStatistics


def window(count, mean=math.nan, maximum=math.nan, metric=AGE, seconds=1.0):
    return Window('/n', '/policy', metric, seconds, count, mean, maximum)


def test_subscribers_share_their_ages_and_not_their_rates():
    assert scalars('policy', [
        [window(10, 2.0, 5.0), window(20, 2.0, 4.0)], [window(10, 6.0, 7.0)]]) == {
            'topics/policy/age_mean_ms': 3.0, 'topics/policy/age_max_ms': 7.0,
            'topics/policy/rate_hz': 12.5}


def test_losses_are_added_up_and_the_last_count_is_all():
    assert scalars('x', [
        [window(1, metric=LOSS), window(3, metric=LOSS)], [window(4, metric=LOSS)]]) == {
            'topics/x/lost': 7.0}


def test_what_is_not_known_is_not_written():
    assert scalars('x', []) == {}
    assert scalars('x', [[window(0), window(0, metric=PERIOD)]]) == {'topics/x/rate_hz': 0.0}


@pytest.fixture
def listening(peer):
    """Return a peer that listens for a run in its namespace, the root."""
    found = TopicScalars(peer.node, 'trajectories', 'policy')
    peer.until(lambda: peer.node.count_subscribers('/statistics'), 'the subscription')
    return found


def test_own_reports_and_those_of_others_in_the_namespace(peer, listening):
    own = TopicStatistics(peer.node, 'trajectories', lost=lambda: 3)
    talker = peer.talk(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
    seen = peer.listen(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])

    def say(source, age_ms):
        statistic = RunningStatistic()
        statistic.add(age_ms)
        message = MetricsMessage(measurement_source_name=source, metrics_source=AGE, unit='ms',
                                 statistics=statistic.points())
        message.window_stop.sec = 2
        talker.publish(message)

    peer.until(lambda: seen, 'own reports')
    age_s = own.received(peer.node.get_clock().now().to_msg())
    for source, age_ms in (('/actor_0:policy', 10.0), ('/actor_1:policy', 20.0),
                           ('/team/actor_0:policy', 1e6), ('/actor_0:arm/motors', 1e6),
                           (':', 1e6), ('/actor_2:policy', math.nan)):
        say(source, age_ms)
    found = {}

    def both():
        found.update(listening.take())
        return 'topics/policy/age_mean_ms' in found and 'topics/trajectories/age_max_ms' in found

    peer.until(both, 'figures of both topics')
    assert found['topics/policy/rate_hz'] == 0.5
    assert found['topics/policy/age_max_ms'] in (10.0, 20.0)
    assert found['topics/trajectories/lost'] == 3.0
    assert found['topics/trajectories/age_mean_ms'] == pytest.approx(1e3 * age_s)
    assert all(name.split('/')[1] in ('policy', 'trajectories') for name in found)
    own.close()
    peer.until(lambda: not listening.take(), 'the end: what was taken does not come again')

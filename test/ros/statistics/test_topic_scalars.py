"""Scalars of a run: only of its own topics, only since the last call."""

import math

import pytest
from statistics_msgs.msg import MetricsMessage

from vdl_ros.ros import qos
from vdl_ros.ros.statistics.topic_scalars import TopicScalars, scalars
from vdl_ros.ros.statistics.topic_statistics import (
    AGE,
    LOSS,
    PERIOD,
    TopicStatistics,
    Window,
    statistic_points,
)


def window(count, mean=math.nan, maximum=math.nan, metric=AGE, seconds=1.0):
    return Window('/n', '/policy', metric, seconds, count, mean, maximum)


def test_ages_are_over_all_subscribers_and_rates_are_averaged():
    assert scalars('policy', [
        [window(10, 2.0, 5.0), window(20, 2.0, 4.0)], [window(10, 6.0, 7.0)]]) == {
            'topics/policy/age_mean_ms': 3.0, 'topics/policy/age_max_ms': 7.0,
            'topics/policy/rate_hz': 12.5}


def test_losses_are_the_sum_of_each_subscribers_last_count():
    assert scalars('x', [
        [window(1, metric=LOSS), window(3, metric=LOSS)], [window(4, metric=LOSS)]]) == {
            'topics/x/lost': 7.0}


def test_unknown_values_are_left_out():
    assert scalars('x', []) == {}
    assert scalars('x', [[window(0), window(0, metric=PERIOD)]]) == {'topics/x/rate_hz': 0.0}


@pytest.fixture
def topic_scalars(peer):
    """Return the scalars of a run in the namespace of ``peer``, the root."""
    found = TopicScalars(peer.node, 'trajectories', 'policy')
    peer.until(lambda: peer.node.count_subscribers('/statistics'), 'the subscription')
    return found


def test_reports_of_the_node_itself_and_of_its_namespace_are_used(peer, topic_scalars):
    statistics = TopicStatistics(peer.node, 'trajectories', lost=lambda: 3)
    talker = peer.talk(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
    received = peer.listen(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])

    def publish(source, age_ms):
        message = MetricsMessage(measurement_source_name=source, metrics_source=AGE, unit='ms',
                                 statistics=statistic_points([age_ms]))
        message.window_stop.sec = 2
        talker.publish(message)

    peer.until(lambda: received, 'reports of the node itself')
    age_s = statistics.received(peer.node.get_clock().now().to_msg())
    for source, age_ms in (('/actor_0:policy', 10.0), ('/actor_1:policy', 20.0),
                           ('/team/actor_0:policy', 1e6), ('/actor_0:arm/motors', 1e6),
                           (':', 1e6), ('/actor_2:policy', math.nan)):
        publish(source, age_ms)
    found = {}

    def both():
        found.update(topic_scalars.take())
        return 'topics/policy/age_mean_ms' in found and 'topics/trajectories/age_max_ms' in found

    peer.until(both, 'figures of both topics')
    assert found['topics/policy/rate_hz'] == 0.5
    assert found['topics/policy/age_max_ms'] in (10.0, 20.0)
    assert found['topics/trajectories/lost'] == 3.0
    assert found['topics/trajectories/age_mean_ms'] == pytest.approx(1e3 * age_s)
    assert all(name.split('/')[1] in ('policy', 'trajectories') for name in found)
    statistics.close()
    peer.until(lambda: not topic_scalars.take(), 'the end: scalars are returned once')

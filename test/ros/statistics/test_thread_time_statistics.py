"""Thread time shares are published and read; malformed reports are skipped."""

import math

import pytest
from builtin_interfaces.msg import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.common.thread_timer import ACTING, TRAINING, ThreadTimer
from vdl_ros.ros import qos
from vdl_ros.ros.statistics.thread_time_statistics import (
    Share,
    ThreadTimeStatistics,
    is_thread_time,
    mean_shares,
    read_share,
)
from vdl_ros.ros.statistics.topic_scalars import TopicScalars

AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE


def report(source='/actor_0', metric='time_acting_step', unit='share', stop=12, points=None):
    return MetricsMessage(
        measurement_source_name=source, metrics_source=metric, unit=unit,
        window_start=Time(sec=10), window_stop=Time(sec=stop),
        statistics=[StatisticDataPoint(data_type=kind, data=value)
                    for kind, value in (points or [(AVERAGE, 0.25)])])


def test_a_report_is_read():
    assert read_share(report()) == Share('/actor_0', 'acting', 'step', 2.0, 0.25)


@pytest.mark.parametrize('change', [
    {'unit': 's'}, {'unit': ''}, {'source': ''}, {'stop': 10}, {'stop': 9},
    {'metric': 'message_age'}, {'metric': 'time_acting_sleep'}, {'metric': 'time_nobody_step'},
    {'metric': 'time_step'}, {'metric': ''},
    {'points': [(AVERAGE, math.nan)]}, {'points': [(AVERAGE, -0.1)]},
    {'points': [(AVERAGE, 1.1)]}, {'points': [(AVERAGE, 0.1), (AVERAGE, 0.1)]},
    {'points': [(AVERAGE + 1, 0.5)]}])
def test_malformed_reports_and_other_metrics_are_skipped(change):
    assert read_share(report(**change)) is None


def test_a_thread_time_is_recognised_by_its_metric_name():
    assert is_thread_time(report(unit='ms'))
    assert not is_thread_time(report(metric='message_age'))
    assert not is_thread_time(report(metric='time_of_day'))


def test_means_are_weighted_by_time():
    shares = [Share('/a', ACTING, 'step', 1.0, 1.0), Share('/b', ACTING, 'step', 3.0, 0.5),
              Share('/a', ACTING, 'wait', 1.0, 0.0), Share('/b', ACTING, 'wait', 3.0, 0.5),
              Share('/c', TRAINING, 'learn', 9.0, 0.25)]
    assert mean_shares(shares) == {
        ACTING: {'step': 0.625, 'wait': 0.375}, TRAINING: {'learn': 0.25}}
    assert mean_shares([]) == {}


def test_a_run_uses_the_reports_of_the_actors_in_its_namespace(peer):
    received = peer.listen(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
    scalars = TopicScalars(peer.node, 'policy')
    timer = ThreadTimer()
    with timer('step'):
        peer.until(lambda: peer.node.count_subscribers('/statistics') == 2, 'subscriptions')
        ThreadTimeStatistics(peer.node, {ACTING: timer})
        talker = peer.talk(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
        talker.publish(report('/team/actor_0', 'time_acting_infer'))
        talker.publish(report(metric='time_training_learn'))
        talker.publish(report(unit='percent'))

        def own():
            return [each for each in map(read_share, received)
                    if each is not None and each.node == '/peer']

        found = {}

        def both():
            found.update(scalars.take())
            return len(own()) >= 2 and len(found) == 2

        peer.until(both, 'a report of its own')
    assert {each.thread for each in own()} == {ACTING}
    assert {each.phase for each in own()} == {'step', 'other'}
    assert sum(each.share for each in own()[:2]) == pytest.approx(1.0)
    assert set(found) == {'time/acting/step', 'time/acting/other'}

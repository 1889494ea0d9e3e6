"""What nodes report of themselves: shares of time, reaction times, scalars and diagnostics."""

import math

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.common.metrics import ACTING, TRAINING, ThreadTimer
from vdl_ros.ros import qos
from vdl_ros.ros.base_node import Diagnostics
from vdl_ros.ros.statistics.readers import TopicScalars, mean_shares, scalars
from vdl_ros.ros.statistics.statistics import (
    AGE,
    LOSS,
    PERIOD,
    ReactionTimeStatistics,
    RunScalars,
    Scalar,
    Share,
    ThreadTimeStatistics,
    TopicStatistics,
    Window,
    is_of_topic,
    read,
    statistic_points,
)

AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE
MAXIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM
COUNT = StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT
STATISTICS = MetricsMessage, '/statistics', qos.TOPICS['/statistics']


def share(source='/actor_0', metric='time_acting_step', unit='share', stop=12, points=None):
    if points is None:
        points = [(AVERAGE, 0.25)]
    return MetricsMessage(
        measurement_source_name=source, metrics_source=metric, unit=unit,
        window_start=Time(sec=10), window_stop=Time(sec=stop),
        statistics=[StatisticDataPoint(data_type=kind, data=value) for kind, value in points])


def scalar(source='/learner', metric='scalar_charts/SPS', unit='scalar', **more):
    return share(source, metric, unit, **more)


def fire(node):
    """Call the timers of a node, as each second."""
    for timer in [*node.timers]:
        timer.callback()


def test_reports_are_read_and_recognised_by_the_names_of_their_metrics():
    assert read(share()) == Share('/actor_0', 'acting', 'step', 2.0, 0.25)
    assert read(scalar()) == Scalar('/learner', 'charts/SPS', 0.25)
    assert read(scalar(metric='scalar_\x1b[2J')).tag == '?[2J', 'cannot clear a terminal'
    for each in (share(unit='ms'), scalar(unit='ms'), share(metric='reaction_time_thinking')):
        assert not is_of_topic(each), each.metrics_source
    for metric in ('message_age', 'time_of_day'):
        assert is_of_topic(share(metric=metric)), metric


def test_malformed_reports_and_other_metrics_are_skipped():
    bad_points = ([], [(AVERAGE, math.nan)], [(AVERAGE, math.inf)], [(AVERAGE + 1, 0.5)])
    for change in ({'unit': 'ms'}, {'source': ''}, {'metric': ''},
                   *({'points': each} for each in bad_points)):
        assert read(share(**change)) is None, change
        assert read(scalar(**change)) is None, change
    for change in ({'stop': 10}, {'stop': 9}, {'metric': 'message_age'},
                   {'metric': 'time_acting_sleep'}, {'metric': 'time_nobody_step'},
                   {'metric': 'time_step'}, {'metric': 'late_actions', 'unit': 'actions'},
                   {'points': [(AVERAGE, -0.1)]}, {'points': [(AVERAGE, 1.1)]}):
        assert read(share(**change)) is None, change
    for metric in ('scalar_', 'charts/SPS'):
        assert read(scalar(metric=metric)) is None, metric


def test_means_of_shares_are_weighted_by_time():
    shares = [Share('/a', ACTING, 'step', 1.0, 1.0), Share('/b', ACTING, 'step', 3.0, 0.5),
              Share('/a', ACTING, 'wait', 1.0, 0.0), Share('/b', ACTING, 'wait', 3.0, 0.5),
              Share('/c', TRAINING, 'learn', 9.0, 0.25)]
    assert mean_shares(shares) == {
        ACTING: {'step': 0.625, 'wait': 0.375}, TRAINING: {'learn': 0.25}}
    assert mean_shares([]) == {}


def test_parts_of_the_reaction_time_their_sum_and_late_actions_are_published_once(peer):
    received = peer.listen(*STATISTICS)
    peer.until(lambda: peer.node.count_subscribers('/statistics') == 1, 'a subscription')
    statistics = ReactionTimeStatistics(peer.node)
    statistics.add({})
    fire(peer.node)
    parts = np.zeros((2, 1, 4), np.float32)
    parts[:, 0] = [[0.01, 0.0, 0.1, 0.02], [0.03, 0.0, 0.1, 0.04]]
    statistics.add({'reaction_time': parts, 'late_actions': np.array([[2], [3]])})
    fire(peer.node)
    fire(peer.node)
    # As sent in order, nothing came for the empty seconds before.
    peer.until(lambda: len(received) >= 6, 'a report')
    assert len(received) == 6
    assert not any(map(is_of_topic, received))
    points = {each.metrics_source: {point.data_type: point.data for point in each.statistics}
              for each in received}
    assert {each.measurement_source_name for each in received} == {'/peer'}
    total = points['reaction_time']
    assert total[AVERAGE] == pytest.approx(150.0, abs=1e-3)
    assert total[MAXIMUM] == pytest.approx(170.0, abs=1e-3)
    assert total[COUNT] == 2
    assert points['reaction_time_thinking'][AVERAGE] == pytest.approx(20.0, abs=1e-3)
    assert points['late_actions'] == {COUNT: 5.0}


def test_the_newest_scalars_are_published_without_those_reported_elsewhere(peer):
    received = peer.listen(*STATISTICS)
    values = {'agent_steps': 10, 'time/training/learn': 0.5, 'topics/policy/rate_hz': 3.0,
              'losses/loss': 0.25, 'charts/episodic_return': math.nan}
    RunScalars(peer.node, lambda: values)
    fire(peer.node)
    peer.until(lambda: len(received) >= 3, 'a report')
    assert [each.metrics_source for each in received[:3]] == [
        'scalar_agent_steps', 'scalar_losses/loss', 'scalar_charts/episodic_return']
    values['agent_steps'] = 20
    fire(peer.node)
    peer.until(lambda: any(read(each) == Scalar('/peer', 'agent_steps', 20.0)
                           for each in received), 'the newest')


def test_diagnostics_have_a_level_a_message_and_values(peer):
    received = peer.listen('/diagnostics')
    warning = ''
    diagnostics = Diagnostics(peer.node, lambda: (warning, {'lost': 2, 'lag': 0.5}))
    fire(peer.node)
    peer.until(lambda: received, 'a report')
    warning = '2 trajectories lost'
    fire(peer.node)
    peer.until(lambda: received[-1].status[0].message != 'ok', 'the warning')
    for found, level, message in ((received[0], DiagnosticStatus.OK, 'ok'),
                                  (received[-1], DiagnosticStatus.WARN, warning)):
        status = found.status[0]
        assert (status.level, status.name, status.message) == (level, '/peer', message)
        assert {each.key: each.value for each in status.values} == {'lost': '2', 'lag': '0.5'}
        assert found.header.stamp.sec > 0
    assert diagnostics is not None


def window(count, mean=math.nan, maximum=math.nan, metric=AGE, seconds=1.0):
    return Window('/n', '/policy', metric, seconds, count, mean, maximum)


def test_figures_of_a_topic_are_over_all_subscribers_and_unknown_ones_left_out():
    # Ages are over all, rates are averaged.
    assert scalars('policy', [
        [window(10, 2.0, 5.0), window(20, 2.0, 4.0)], [window(10, 6.0, 7.0)]]) == {
            'topics/policy/age_mean_ms': 3.0, 'topics/policy/age_max_ms': 7.0,
            'topics/policy/rate_hz': 12.5}
    # Losses are the sum of each subscriber's last count.
    assert scalars('x', [
        [window(1, metric=LOSS), window(3, metric=LOSS)], [window(4, metric=LOSS)]]) == {
            'topics/x/lost': 7.0}
    assert scalars('x', []) == {}
    assert scalars('x', [[window(0), window(0, metric=PERIOD)]]) == {'topics/x/rate_hz': 0.0}


def test_a_run_uses_the_reports_of_its_learner_and_of_actors_in_its_namespace(peer):
    found, topic_scalars = {}, TopicScalars(peer.node, 'trajectories', 'policy')
    statistics = TopicStatistics(peer.node, 'trajectories', lost=lambda: 3)
    timer = ThreadTimer()
    ThreadTimeStatistics(peer.node, {ACTING: timer})
    talker, received = peer.talk(*STATISTICS), peer.listen(*STATISTICS)
    peer.until(lambda: peer.node.count_subscribers('/statistics') == 2, 'subscriptions')
    with timer('step'):
        fire(peer.node)
        age_s = statistics.received(peer.node.get_clock().now().to_msg())
        for source, age_ms in (('/actor_0:policy', 10.0), ('/actor_1:policy', 20.0),
                               ('/team/actor_0:policy', 1e6), ('/actor_0:arm/motors', 1e6),
                               (':', 1e6), ('/actor_2:policy', math.nan)):
            message = MetricsMessage(measurement_source_name=source, metrics_source=AGE,
                                     unit='ms', statistics=statistic_points([age_ms]))
            message.window_stop.sec = 2
            talker.publish(message)
        # Of another run, of no actor, and malformed.
        talker.publish(share('/team/actor_0', 'time_acting_infer'))
        talker.publish(share(metric='time_training_learn'))
        talker.publish(share(unit='percent'))
        fire(peer.node)
        wanted = {'time/acting/step', 'time/acting/other', 'topics/policy/age_mean_ms',
                  'topics/trajectories/age_max_ms'}

        def all_figures():
            found.update(topic_scalars.take())
            return found.keys() >= wanted

        peer.until(all_figures, 'figures of both topics and of time')
    own = [each for each in map(read, received)
           if isinstance(each, Share) and each.node == '/peer']
    assert sum(each.share for each in own[:2]) == pytest.approx(1.0)
    assert {name for name in found if name.startswith('time')} <= wanted
    assert {name.split('/')[1] for name in found} == {'acting', 'policy', 'trajectories'}
    assert found['topics/policy/rate_hz'] == 0.5
    assert found['topics/policy/age_max_ms'] in (10.0, 20.0)
    assert found['topics/trajectories/lost'] == 3.0
    assert found['topics/trajectories/age_mean_ms'] == pytest.approx(1e3 * age_s)
    statistics.close()

"""What nodes measure on ``/statistics``, as rclcpp does; what is read of it, of any publisher."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from builtin_interfaces.msg import Time as TimeMessage
from rclpy.clock import ClockType
from rclpy.duration import Duration
from rclpy.time import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.common.metrics import ACTING, ThreadTimer
from vdl_ros.ros.statistics import statistics as module
from vdl_ros.ros.statistics.readers import TopicScalars
from vdl_ros.ros.statistics.statistics import (
    AGE,
    LOSS,
    ReactionTimeStatistics,
    RunScalars,
    Scalar,
    Share,
    ThreadTimeStatistics,
    TopicStatistics,
    Window,
    absolute_name,
    is_of_topic,
    read,
    statistic_points,
)

AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE
MINIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM
MAXIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM
COUNT = StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT


def points(message):
    """Return the points by type."""
    return {point.data_type: point.data for point in message.statistics}


def unknown(*values):
    return all(math.isnan(each) for each in values)


def fire(node):
    """Call the timers of a node, as each second."""
    for timer in [*node.timers]:
        timer.callback()


def test_one_report_of_age_and_one_of_period_are_published_each_second(peer, monkeypatch):
    received = peer.listen('/statistics')
    # Both clocks are set by the test, so a slow machine changes nothing.
    clock = peer.node.get_clock()
    now = 100.0

    def at(seconds):
        nonlocal now
        now = seconds
        clock.set_ros_time_override(Time(seconds=seconds, clock_type=ClockType.ROS_TIME))

    clock._set_ros_time_is_active(True)
    at(100.0)
    monkeypatch.setattr(module, 'time', SimpleNamespace(monotonic=lambda: now))
    statistics = TopicStatistics(peer.node, 'policy')
    for moment, age in ((100.25, 0.010), (100.5, 0.030)):
        at(moment)
        stamp = clock.now() - Duration(seconds=age)
        assert statistics.received(stamp.to_msg()) == pytest.approx(age)
    at(100.625)
    assert math.isnan(statistics.received(None))
    peer.until(lambda: peer.node.count_subscribers('/statistics') == 1, 'the subscription')
    at(101.0)
    peer.until(lambda: len(received) >= 2, 'the first window')
    at(102.0)
    peer.until(lambda: len(received) >= 4, 'the second window')
    first, second = received[:2], received[2:4]
    for pair, begin in ((first, 100), (second, 101)):
        assert [each.metrics_source for each in pair] == ['message_age', 'message_period']
        for each in pair:
            assert (each.measurement_source_name, each.unit) == ('/peer:policy', 'ms')
            assert (each.window_start.sec, each.window_stop.sec) == (begin, begin + 1)
    age, period = map(points, first)
    assert (age[COUNT], period[COUNT]) == (2, 2)
    assert (age[MINIMUM], age[AVERAGE], age[MAXIMUM]) == pytest.approx((10.0, 20.0, 30.0))
    assert (period[MINIMUM], period[AVERAGE], period[MAXIMUM]) == pytest.approx(
        (125.0, 187.5, 250.0))
    # The next window starts empty.
    for found in map(points, second):
        assert found.pop(COUNT) == 0
        assert len(found) == 4
        assert unknown(*found.values())


def test_losses_are_reported_as_the_total_since_the_subscription(peer):
    received = peer.listen('/statistics')
    losses = iter(range(3, 100))
    statistics = TopicStatistics(peer.node, 'trajectories', lost=lambda: next(losses))
    for _ in range(2):
        fire(peer.node)
    peer.until(lambda: len(received) >= 6, 'two reports')
    assert [each.metrics_source for each in received[:6]] == [
        'message_age', 'message_period', 'message_loss'] * 2
    first, second = received[2], received[5]
    assert first.unit == second.unit == 'messages'
    assert points(second) == {COUNT: points(first)[COUNT] + 1}
    assert first.window_start == second.window_start
    statistics.close()


def test_parts_of_the_reaction_time_their_sum_and_late_actions_are_published_once(peer):
    received = peer.listen('/statistics')
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
    found = {each.metrics_source: points(each) for each in received}
    total = found['reaction_time']
    assert (total[AVERAGE], total[MAXIMUM], total[COUNT]) == pytest.approx(
        (150.0, 170.0, 2), abs=1e-3)
    assert found['reaction_time_thinking'][AVERAGE] == pytest.approx(20.0, abs=1e-3)
    assert found['late_actions'] == {COUNT: 5.0}


def test_the_newest_scalars_are_published_without_those_reported_elsewhere(peer):
    received = peer.listen('/statistics')
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


def report(source='/team/worker:policy', metric=AGE, unit='ms', start=(10, 0),
           stop=(11, 0), **points):
    """Return a message; ``points`` are by type: t1=2.0 is a point of type 1 with value 2.0."""
    points = points or {'t1': 3.0, 't2': 1.0, 't3': 9.0, 't4': 2.0, 't5': 4.0}
    return MetricsMessage(
        measurement_source_name=source, metrics_source=metric, unit=unit,
        window_start=TimeMessage(sec=start[0], nanosec=start[1]),
        window_stop=TimeMessage(sec=stop[0], nanosec=stop[1]),
        statistics=[StatisticDataPoint(data_type=int(name[1:]), data=value)
                    for name, value in points.items()])


def share(source='/actor_0', metric='time_acting_step', unit='share', **more):
    return report(source, metric, unit, **{'t1': 0.25} | more)


def scalar(source='/learner', metric='scalar_charts/SPS', unit='scalar', **more):
    return share(source, metric, unit, **more)


def test_reports_are_read_and_recognised_by_the_names_of_their_metrics():
    assert read(share()) == Share('/actor_0', 'acting', 'step', 1.0, 0.25)
    assert read(scalar()) == Scalar('/learner', 'charts/SPS', 0.25)
    assert read(scalar(metric='scalar_\x1b[2J')).tag == '?[2J', 'cannot clear a terminal'
    for each in (share(unit='ms'), scalar(unit='ms'), share(metric='reaction_time_thinking')):
        assert not is_of_topic(each), each.metrics_source
    for metric in ('message_age', 'time_of_day'):
        assert is_of_topic(share(metric=metric)), metric


def test_a_report_is_read_with_the_topic_in_the_namespace_of_its_node():
    assert read(report(start=(10, 900_000_000), stop=(12, 400_000_000))) == Window(
        '/team/worker', '/team/policy', 'message_age', 1.5, 4, 3.0, 9.0, 2.0)
    found = read(report(metric=LOSS, unit='messages', t5=3.0))
    assert (found.metric, found.count) == (LOSS, 3)
    assert unknown(found.mean, found.maximum, found.deviation), 'losses have only a count'
    for node, topic, name in (
            ('/learner', 'policy', '/policy'), ('/a/b/learner', 'arm/motors', '/a/b/arm/motors'),
            ('/a/learner', '/statistics', '/statistics'),
            ('/a/learner', '~/own', '/a/learner/own'), ('listener', '', '')):
        assert absolute_name(node, topic) == name
        assert read(report(f'{node}:{topic}')).topic == name
    found = read(report('listener'))  # as of rclcpp, without a topic
    assert (found.node, found.topic) == ('listener', '')


def test_malformed_reports_and_other_metrics_are_skipped():
    bad_points = ({'t1': math.nan}, {'t1': math.inf}, {'t1': -0.1}, {'t1': 1.1})
    for change in ({'unit': 'ms'}, {'source': ''}, {'metric': ''}, {'stop': (10, 0)},
                   {'metric': 'message_age'}, {'metric': 'time_acting_sleep'},
                   {'metric': 'time_nobody_step'}, {'metric': 'time_step'},
                   {'metric': 'late_actions', 'unit': 'actions'}, *bad_points):
        assert read(share(**change)) is None, change
    for change in ({'unit': 'ms'}, {'source': ''}, {'metric': 'scalar_'},
                   {'metric': 'charts/SPS'}, *bad_points[:2]):
        assert read(scalar(**change)) is None, change
    for change in (
            {'metric': 'cpu_usage', 'unit': 'percent'}, {'metric': ''}, {'unit': 's'},
            {'metric': LOSS}, {'source': ''}, {'source': ':policy'}, {'t1': 1.0},
            {'t5': math.nan}, {'t5': math.inf}, {'t5': -1.0}, {'t5': 1e300},
            {'t0': 5.0, 't6': 5.0, 't255': 5.0}):
        assert read(report(**change)) is None, change
    assert read(MetricsMessage()) is None
    # Missing and non-finite values are NaN.
    for values in ({'t5': 2.0, 't77': 1.0}, {'t1': math.nan, 't3': math.inf, 't4': -1.0,
                                             't5': 2.0}):
        found = read(report(**values))
        assert found.count == 2, values
        assert unknown(found.mean, found.maximum, found.deviation), values
    for stop in ((10, 0), (5, 0), (-2**31, 0)):
        assert unknown(read(report(stop=stop)).seconds), stop
    # Control characters and long names are cut.
    found = read(report('/n\x1b[2J\nü:' + 'x' * 10_000))
    assert found.node == '/n?[2J??'
    assert len(found.topic) < 256
    # Points beyond the limit are ignored.
    message = report(t5=2.0)
    message.statistics = list(message.statistics) * 1000 + [
        StatisticDataPoint(data_type=COUNT, data=7.0)]
    assert read(message).count == 2


def test_a_run_uses_the_reports_of_its_learner_and_of_actors_in_its_namespace(peer):
    found, topic_scalars = {}, TopicScalars(peer.node, 'trajectories', 'policy')
    statistics = TopicStatistics(peer.node, 'trajectories', lost=lambda: 3)
    timer = ThreadTimer()
    ThreadTimeStatistics(peer.node, {ACTING: timer})
    talker, received = peer.talk('/statistics'), peer.listen('/statistics')
    peer.until(lambda: peer.node.count_subscribers('/statistics') == 2, 'subscriptions')
    with timer('step'):
        fire(peer.node)
        age_s = statistics.received(peer.node.get_clock().now().to_msg())
        for source, age_ms in (('/actor_0:policy', 10.0), ('/actor_1:policy', 20.0),
                               ('/team/actor_0:policy', 1e6), ('/actor_0:arm/motors', 1e6),
                               (':', 1e6), ('/actor_2:policy', math.nan)):
            message = report(source, stop=(12, 0))
            message.statistics = statistic_points([age_ms])
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

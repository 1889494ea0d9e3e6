"""Topic statistics follow rclcpp's contract; malformed reports are skipped."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from builtin_interfaces.msg import Time as TimeMessage
from rclpy.clock import ClockType
from rclpy.duration import Duration
from rclpy.time import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.ros.statistics import statistics as module
from vdl_ros.ros.statistics.readers import combine
from vdl_ros.ros.statistics.statistics import (
    AGE,
    LOSS,
    PERIOD,
    TopicStatistics,
    Window,
    absolute_name,
    read,
    statistic_points,
)

AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE
MINIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM
MAXIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM
STDDEV = StatisticDataType.STATISTICS_DATA_TYPE_STDDEV
COUNT = StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT


def points(statistics):
    """Return the points by type; each type must occur once."""
    found = {point.data_type: point.data for point in statistics}
    assert len(statistics) == len(found) == 5
    return found


def test_statistics_of_a_window_equal_numpys():
    for count, offset in ((1, 0.0), (2, -3.0), (1000, 1e9)):
        values = np.random.default_rng(0).normal(size=count) + offset
        found = points(statistic_points(values.tolist()))
        assert found[AVERAGE] == pytest.approx(values.mean(), rel=1e-12)
        assert found[STDDEV] == pytest.approx(values.std(), rel=1e-6, abs=1e-12)
        assert (found[MINIMUM], found[MAXIMUM]) == (values.min(), values.max())
        assert found[COUNT] == count
    empty = points(statistic_points([]))
    assert empty.pop(COUNT) == 0
    assert unknown(*empty.values())


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
        assert {each.measurement_source_name for each in pair} == {'/peer:policy'}
        assert {each.unit for each in pair} == {'ms'}
        for each in pair:
            assert (each.window_start.sec, each.window_start.nanosec) == (begin, 0)
            assert (each.window_stop.sec, each.window_stop.nanosec) == (begin + 1, 0)
    age, period = (points(each.statistics) for each in first)
    assert (age[COUNT], period[COUNT]) == (2, 2)
    assert (age[MINIMUM], age[AVERAGE], age[MAXIMUM]) == pytest.approx((10.0, 20.0, 30.0))
    assert (period[MINIMUM], period[AVERAGE], period[MAXIMUM]) == pytest.approx(
        (125.0, 187.5, 250.0))
    # The next window starts empty.
    for each in second:
        found = points(each.statistics)
        assert found.pop(COUNT) == 0
        assert unknown(*found.values())


def test_losses_are_reported_as_the_total_since_the_subscription(peer):
    received = peer.listen('/statistics')
    losses = iter(range(3, 100))
    statistics = TopicStatistics(peer.node, 'trajectories', lost=lambda: next(losses))
    for timer in [*peer.node.timers] * 2:
        timer.callback()
    peer.until(lambda: len(received) >= 6, 'two reports')
    metrics = [each.metrics_source for each in received[:6]]
    assert metrics == ['message_age', 'message_period', 'message_loss'] * 2
    first, second = received[2], received[5]
    assert {each.unit for each in (first, second)} == {'messages'}
    count = [{point.data_type: point.data for point in each.statistics}
             for each in (first, second)]
    assert count[1] == {COUNT: count[0][COUNT] + 1}
    assert first.window_start == second.window_start
    statistics.close()


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


def window(metric=AGE, seconds=1.0, count=1, **rest):
    return Window('/n', '/t', metric, seconds, count, **rest)


def unknown(*values):
    return all(math.isnan(each) for each in values)


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


def test_combined_windows_equal_one_long_window():
    values = np.random.default_rng(0).normal(5.0, 2.0, 100)
    windows = []
    for part in np.split(values, [20, 50]):
        message = report()
        message.statistics = statistic_points(part.tolist())
        windows.append(read(message))
    found = combine([*windows, window(PERIOD, count=97)])
    assert found.age_mean_ms == pytest.approx(values.mean())
    assert found.age_std_ms == pytest.approx(values.std())
    assert found.age_max_ms == values.max()
    assert (found.samples, found.lost) == (100, None)
    assert found.rate_hz == pytest.approx(100 / 3)


def test_unknown_figures_are_nan_and_the_last_count_of_losses_is_the_total():
    found = combine([window(count=0), window(PERIOD, seconds=2.0, count=8, mean=250.0)])
    assert (found.rate_hz, found.samples) == (4.0, 8)
    assert unknown(found.age_mean_ms, found.age_std_ms, found.age_max_ms), 'without stamps'
    assert combine([window(count=0), window(PERIOD, count=0)]).rate_hz == 0
    assert combine([window(LOSS, count=2), window(LOSS, count=5)]).lost == 5
    found = combine([])
    assert unknown(found.rate_hz, found.age_mean_ms, found.age_std_ms, found.age_max_ms)
    assert (found.samples, found.lost) == (0, None)
    assert unknown(combine([window(seconds=math.nan)]).rate_hz)
    # Huge ages give NaN and no error.
    big = window(count=2**53, mean=1e308, maximum=1e308, deviation=1e308)
    found = combine([big, window(mean=-1e308, deviation=1e308)])
    assert found.age_max_ms == 1e308
    assert unknown(found.age_mean_ms, found.age_std_ms)

"""Topic statistics follow rclcpp's contract; malformed reports are skipped."""

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
import rclpy
from builtin_interfaces.msg import Time as TimeMessage
from rclpy.clock import ClockType
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.time import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.ros import qos
from vdl_ros.ros.statistics import topic_statistics as module
from vdl_ros.ros.statistics.topic_statistics import (
    AGE,
    LOSS,
    PERIOD,
    TopicStatistics,
    Window,
    absolute_name,
    combine,
    read_window,
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


@pytest.mark.parametrize('offset', [0.0, -3.0, 1e9])
@pytest.mark.parametrize('count', [1, 2, 1000])
def test_statistics_of_a_window_equal_numpys(count, offset):
    values = np.random.default_rng(0).normal(size=count) + offset
    found = points(statistic_points(values.tolist()))
    assert found[AVERAGE] == pytest.approx(values.mean(), rel=1e-12)
    assert found[STDDEV] == pytest.approx(values.std(), rel=1e-6, abs=1e-12)
    assert (found[MINIMUM], found[MAXIMUM]) == (values.min(), values.max())
    assert found[COUNT] == count


def test_an_empty_window_has_nan_and_count_0():
    found = points(statistic_points([]))
    assert found.pop(COUNT) == 0
    assert len(found) == 4
    assert all(math.isnan(value) for value in found.values())


class Graph:
    """A node that measures, and one that subscribes to /statistics."""

    def __init__(self):
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.node = rclpy.create_node('worker', namespace='/team', context=self.context)
        listener = rclpy.create_node('listener', context=self.context)
        self.received = []
        listener.create_subscription(
            MetricsMessage, '/statistics', self.received.append, qos.TOPICS['/statistics'])
        self.executor.add_node(self.node)
        self.executor.add_node(listener)

    def spin_until(self, condition):
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline
            self.executor.spin_once(timeout_sec=0.1)

    def close(self):
        self.executor.shutdown()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def graph():
    made = Graph()
    yield made
    made.close()


def test_one_report_of_age_and_one_of_period_are_published_each_second(graph, monkeypatch):
    # Both clocks are set by the test, so a slow machine changes nothing.
    clock = graph.node.get_clock()
    now = 100.0

    def at(seconds):
        nonlocal now
        now = seconds
        clock.set_ros_time_override(Time(seconds=seconds, clock_type=ClockType.ROS_TIME))

    clock._set_ros_time_is_active(True)
    at(100.0)
    monkeypatch.setattr(module, 'time', SimpleNamespace(monotonic=lambda: now))
    statistics = TopicStatistics(graph.node, 'policy')
    for moment, age in ((100.25, 0.010), (100.5, 0.030)):
        at(moment)
        stamp = clock.now() - Duration(seconds=age)
        assert statistics.received(stamp.to_msg()) == pytest.approx(age)
    at(100.625)
    assert math.isnan(statistics.received(None))
    at(101.0)
    graph.spin_until(lambda: len(graph.received) >= 2)
    at(102.0)
    graph.spin_until(lambda: len(graph.received) >= 4)
    first, second = graph.received[:2], graph.received[2:4]
    for pair, begin in ((first, 100), (second, 101)):
        assert [each.metrics_source for each in pair] == ['message_age', 'message_period']
        assert {each.measurement_source_name for each in pair} == {'/team/worker:policy'}
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
        assert all(math.isnan(value) for value in found.values())


def test_losses_are_reported_as_the_total_since_the_subscription(graph):
    losses = iter(range(3, 100))
    statistics = TopicStatistics(graph.node, 'trajectories', lost=lambda: next(losses))
    graph.spin_until(lambda: len(graph.received) >= 6)
    metrics = [each.metrics_source for each in graph.received[:6]]
    assert metrics == ['message_age', 'message_period', 'message_loss'] * 2
    first, second = graph.received[2], graph.received[5]
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


def test_a_report_is_read():
    assert read_window(report(start=(10, 900_000_000), stop=(12, 400_000_000))) == Window(
        '/team/worker', '/team/policy', 'message_age', 1.5, 4, 3.0, 9.0, 2.0)


def test_a_report_of_losses_has_only_a_count():
    found = read_window(report(metric=LOSS, unit='messages', t5=3.0))
    assert (found.metric, found.count) == (LOSS, 3)
    assert unknown(found.mean, found.maximum, found.deviation)


@pytest.mark.parametrize(('node', 'topic', 'name'), [
    ('/learner', 'policy', '/policy'), ('/a/b/learner', 'arm/motors', '/a/b/arm/motors'),
    ('/a/learner', '/statistics', '/statistics'), ('/a/learner', '~/own', '/a/learner/own'),
    ('listener', '', '')])
def test_topic_names_are_resolved_in_the_namespace_of_their_node(node, topic, name):
    assert absolute_name(node, topic) == name
    assert read_window(report(f'{node}:{topic}')).topic == name


def test_a_report_of_rclcpp_has_no_topic():
    found = read_window(report('listener'))
    assert (found.node, found.topic) == ('listener', '')


@pytest.mark.parametrize('change', [
    {'metric': 'cpu_usage', 'unit': 'percent'}, {'metric': ''}, {'unit': 's'}, {'unit': ''},
    {'metric': LOSS}, {'source': ''}, {'source': ':policy'},
    {'t1': 1.0}, {'t5': math.nan}, {'t5': math.inf}, {'t5': -1.0}, {'t5': 1e300},
    {'t0': 5.0, 't6': 5.0, 't255': 5.0}])
def test_malformed_reports_and_other_metrics_are_skipped(change):
    assert read_window(report(**change)) is None


def test_missing_and_non_finite_values_are_nan():
    found = read_window(report(t5=2.0, t77=1.0))
    assert found.count == 2
    assert unknown(found.mean, found.maximum, found.deviation)
    found = read_window(report(t1=math.nan, t3=math.inf, t4=-1.0, t5=2.0))
    assert unknown(found.mean, found.maximum, found.deviation)
    for stop in ((10, 0), (5, 0), (-2**31, 0)):
        assert unknown(read_window(report(stop=stop)).seconds)
    assert read_window(MetricsMessage()) is None


def test_control_characters_and_long_names_are_cut():
    found = read_window(report('/n\x1b[2J\nü:' + 'x' * 10_000))
    assert found.node == '/n?[2J??'
    assert len(found.topic) < 256


def test_points_beyond_the_limit_are_ignored():
    message = report(t5=2.0)
    message.statistics = list(message.statistics) * 1000 + [
        StatisticDataPoint(data_type=COUNT, data=7.0)]
    assert read_window(message).count == 2


def test_combined_windows_equal_one_long_window():
    values = np.random.default_rng(0).normal(5.0, 2.0, 100)
    windows = []
    for part in np.split(values, [20, 50]):
        message = report()
        message.statistics = statistic_points(part.tolist())
        windows.append(read_window(message))
    found = combine([*windows, window(PERIOD, count=97)])
    assert found.age_mean_ms == pytest.approx(values.mean())
    assert found.age_std_ms == pytest.approx(values.std())
    assert found.age_max_ms == values.max()
    assert (found.samples, found.lost) == (100, None)
    assert found.rate_hz == pytest.approx(100 / 3)


def test_messages_without_a_stamp_have_a_rate_and_no_age():
    found = combine([window(count=0), window(PERIOD, seconds=2.0, count=8, mean=250.0)])
    assert (found.rate_hz, found.samples) == (4.0, 8)
    assert unknown(found.age_mean_ms, found.age_std_ms, found.age_max_ms)


def test_a_topic_without_messages_has_rate_0():
    assert combine([window(count=0), window(PERIOD, count=0)]).rate_hz == 0


def test_the_last_count_of_losses_is_the_total():
    assert combine([window(LOSS, count=2), window(LOSS, count=5)]).lost == 5


def test_figures_of_no_windows_are_nan():
    found = combine([])
    assert unknown(found.rate_hz, found.age_mean_ms, found.age_std_ms, found.age_max_ms)
    assert (found.samples, found.lost) == (0, None)
    assert unknown(combine([window(seconds=math.nan)]).rate_hz)


def test_huge_ages_give_nan_and_no_error():
    big = window(count=2**53, mean=1e308, maximum=1e308, deviation=1e308)
    found = combine([big, window(mean=-1e308, deviation=1e308)])
    assert found.age_max_ms == 1e308
    assert unknown(found.age_mean_ms, found.age_std_ms)

"""Topic statistics keep rclcpp's contract."""

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
import rclpy
from rclpy.clock import ClockType
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.time import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataType

from vdl_ros.ros import qos
from vdl_ros.ros.statistics import topic_statistics as module
from vdl_ros.ros.statistics.topic_statistics import RunningStatistic, TopicStatistics

AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE
MINIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM
MAXIMUM = StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM
STDDEV = StatisticDataType.STATISTICS_DATA_TYPE_STDDEV
COUNT = StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT


def points(statistics):
    """Return the points by their type, of which each must come once."""
    found = {point.data_type: point.data for point in statistics}
    assert len(statistics) == len(found) == 5
    return found


@pytest.mark.parametrize('offset', [0.0, -3.0, 1e9])
@pytest.mark.parametrize('count', [1, 2, 1000])
def test_running_statistics_are_numpys(count, offset):
    values = np.random.default_rng(0).normal(size=count) + offset
    statistic = RunningStatistic()
    for value in values:
        statistic.add(float(value))
    found = points(statistic.points())
    assert found[AVERAGE] == pytest.approx(values.mean(), rel=1e-12)
    assert found[STDDEV] == pytest.approx(values.std(), rel=1e-6, abs=1e-12)
    assert (found[MINIMUM], found[MAXIMUM]) == (values.min(), values.max())
    assert found[COUNT] == count


def test_nothing_measured_is_nan_and_count_0():
    found = points(RunningStatistic().points())
    assert found.pop(COUNT) == 0
    assert len(found) == 4
    assert all(math.isnan(value) for value in found.values())


class Graph:
    """A node that measures, and one that listens to /statistics."""

    def __init__(self):
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.node = rclpy.create_node('worker', namespace='/team', context=self.context)
        listener = rclpy.create_node('listener', context=self.context)
        self.heard = []
        listener.create_subscription(
            MetricsMessage, '/statistics', self.heard.append, qos.TOPICS['/statistics'])
        self.executor.add_node(self.node)
        self.executor.add_node(listener)

    def spin_until(self, condition):
        deadline = time.monotonic() + 20
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


def test_two_messages_a_second_name_node_and_topic(graph, monkeypatch):
    # Time as it is told: how late a machine is says nothing here.
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
    graph.spin_until(lambda: len(graph.heard) >= 2)
    at(102.0)
    graph.spin_until(lambda: len(graph.heard) >= 4)
    first, second = graph.heard[:2], graph.heard[2:4]
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
    # The next second starts with nothing.
    for each in second:
        found = points(each.statistics)
        assert found.pop(COUNT) == 0
        assert all(math.isnan(value) for value in found.values())


def test_who_knows_of_losses_says_how_many_there_were_since_the_subscription(graph):
    losses = iter(range(3, 100))
    statistics = TopicStatistics(graph.node, 'trajectories', lost=lambda: next(losses))
    graph.spin_until(lambda: len(graph.heard) >= 6)
    metrics = [each.metrics_source for each in graph.heard[:6]]
    assert metrics == ['message_age', 'message_period', 'message_loss'] * 2
    first, second = graph.heard[2], graph.heard[5]
    assert {each.unit for each in (first, second)} == {'messages'}
    count = [{point.data_type: point.data for point in each.statistics}
             for each in (first, second)]
    assert count[1] == {COUNT: count[0][COUNT] + 1}
    assert first.window_start == second.window_start
    statistics.close()

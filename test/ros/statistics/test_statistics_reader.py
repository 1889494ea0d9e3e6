"""What is read off /statistics is what was measured; what is malformed is left out."""

import math

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint

from vdl_ros.ros.statistics.statistics_reader import (
    AGE,
    LOSS,
    PERIOD,
    Window,
    combine,
    full_name,
    read,
)
from vdl_ros.ros.statistics.topic_statistics import RunningStatistic

AVERAGE, MINIMUM, MAXIMUM, STDDEV, COUNT = range(1, 6)


def report(source='/team/worker:policy', metric=AGE, unit='ms', start=(10, 0),
           stop=(11, 0), **points):
    """Return a message; ``points`` are by name: t1=2.0 is the type 1 with 2.0."""
    points = points or {'t1': 3.0, 't2': 1.0, 't3': 9.0, 't4': 2.0, 't5': 4.0}
    return MetricsMessage(
        measurement_source_name=source, metrics_source=metric, unit=unit,
        window_start=Time(sec=start[0], nanosec=start[1]),
        window_stop=Time(sec=stop[0], nanosec=stop[1]),
        statistics=[StatisticDataPoint(data_type=int(name[1:]), data=value)
                    for name, value in points.items()])


def window(metric=AGE, seconds=1.0, count=1, **rest):
    return Window('/n', '/t', metric, seconds, count, **rest)


def unknown(*values):
    return all(math.isnan(each) for each in values)


def test_a_report_is_read():
    assert read(report(start=(10, 900_000_000), stop=(12, 400_000_000))) == Window(
        '/team/worker', '/team/policy', 'message_age', 1.5, 4, 3.0, 9.0, 2.0)


def test_a_report_of_losses_has_a_count_and_no_more():
    found = read(report(metric=LOSS, unit='messages', t5=3.0))
    assert (found.metric, found.count) == (LOSS, 3)
    assert unknown(found.mean, found.maximum, found.deviation)


@pytest.mark.parametrize(('node', 'topic', 'name'), [
    ('/learner', 'policy', '/policy'), ('/a/b/learner', 'arm/motors', '/a/b/arm/motors'),
    ('/a/learner', '/statistics', '/statistics'), ('/a/learner', '~/own', '/a/learner/own'),
    ('listener', '', '')])
def test_topics_are_named_in_the_namespace_of_their_node(node, topic, name):
    assert full_name(node, topic) == name
    assert read(report(f'{node}:{topic}')).topic == name


def test_rclcpp_names_no_topic():
    found = read(report('listener'))
    assert (found.node, found.topic) == ('listener', '')


@pytest.mark.parametrize('change', [
    {'metric': 'cpu_usage', 'unit': 'percent'}, {'metric': ''}, {'unit': 's'}, {'unit': ''},
    {'metric': LOSS}, {'source': ''}, {'source': ':policy'},
    {'t1': 1.0}, {'t5': math.nan}, {'t5': math.inf}, {'t5': -1.0}, {'t5': 1e300},
    {'t0': 5.0, 't6': 5.0, 't255': 5.0}])
def test_what_does_not_fit_is_left_out(change):
    assert read(report(**change)) is None


def test_what_is_missing_or_no_number_is_not_known():
    found = read(report(t5=2.0, t77=1.0))
    assert found.count == 2
    assert unknown(found.mean, found.maximum, found.deviation)
    found = read(report(t1=math.nan, t3=math.inf, t4=-1.0, t5=2.0))
    assert unknown(found.mean, found.maximum, found.deviation)
    for stop in ((10, 0), (5, 0), (-2**31, 0)):
        assert unknown(read(report(stop=stop)).seconds)
    assert read(MetricsMessage()) is None


def test_names_do_no_harm_to_a_terminal():
    found = read(report('/n\x1b[2J\nü:' + 'x' * 10_000))
    assert found.node == '/n?[2J??'
    assert len(found.topic) < 256


def test_more_points_than_types_cost_little():
    message = report(t5=2.0)
    message.statistics = list(message.statistics) * 1000 + [
        StatisticDataPoint(data_type=COUNT, data=7.0)]
    assert read(message).count == 2


def test_windows_together_are_as_one_long_window():
    values = np.random.default_rng(0).normal(5.0, 2.0, 100)
    windows = []
    for part in np.split(values, [20, 50]):
        statistic = RunningStatistic()
        for value in part:
            statistic.add(float(value))
        message = report()
        message.statistics = statistic.points()
        windows.append(read(message))
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


def test_a_topic_that_is_silent_has_the_rate_0():
    assert combine([window(count=0), window(PERIOD, count=0)]).rate_hz == 0


def test_the_last_count_of_losses_holds_the_others():
    assert combine([window(LOSS, count=2), window(LOSS, count=5)]).lost == 5


def test_nothing_is_known_of_nothing():
    found = combine([])
    assert unknown(found.rate_hz, found.age_mean_ms, found.age_std_ms, found.age_max_ms)
    assert (found.samples, found.lost) == (0, None)
    assert unknown(combine([window(seconds=math.nan)]).rate_hz)


def test_absurd_ages_do_not_overflow():
    big = window(count=2**53, mean=1e308, maximum=1e308, deviation=1e308)
    found = combine([big, window(mean=-1e308, deviation=1e308)])
    assert found.age_max_ms == 1e308
    assert unknown(found.age_mean_ms, found.age_std_ms)

"""What nodes measure on ``/statistics``, as rclcpp does; what is read of it, of any publisher."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from builtin_interfaces.msg import Time as TimeMessage
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


class Node:
    """A node that keeps what is published, and fires its timers when the test sets its time, s."""

    def __init__(self):
        self.published, self._timers, self.seconds = [], [], 100.0

    def get_fully_qualified_name(self):
        return '/learner'

    def get_clock(self):
        return SimpleNamespace(now=lambda: Time(seconds=self.seconds))

    def create_publisher(self, *_, **more):
        return SimpleNamespace(publish=self.published.append)

    def create_subscription(self, kind, topic, callback, profile):
        self.receive = callback

    def create_timer(self, period, callback):
        self._timers.append(callback)

    def fire(self, seconds):
        """Return what is published at a time."""
        self.published.clear()
        self.seconds = seconds
        for callback in self._timers:
            callback()
        return list(self.published)


@pytest.fixture
def node():
    return Node()


def points(message):
    return {point.data_type: point.data for point in message.statistics}


def unknown(*values):
    return all(math.isnan(each) for each in values)


def test_one_report_of_age_and_one_of_period_are_published_each_second(node, monkeypatch):
    monkeypatch.setattr(module, 'time', SimpleNamespace(monotonic=lambda: node.seconds))
    losses = iter((3, 4))
    statistics = TopicStatistics(node, 'policy', lost=lambda: next(losses))
    for node.seconds, age in ((100.25, 0.010), (100.5, 0.030)):
        stamp = Time(seconds=node.seconds) - Duration(seconds=age)
        assert statistics.received(stamp.to_msg()) == pytest.approx(age)
    node.seconds = 100.625
    assert math.isnan(statistics.received(None))
    first, second = node.fire(101.0), node.fire(102.0)
    for reports, begin in ((first, 100), (second, 101)):
        assert [(each.metrics_source, each.unit, each.window_start.sec) for each in reports] == [
            ('message_age', 'ms', begin), ('message_period', 'ms', begin),
            ('message_loss', 'messages', 100)]
        assert {each.measurement_source_name for each in reports} == {'/learner:policy'}
        assert {each.window_stop.sec for each in reports} == {begin + 1}
    age, period, loss = map(points, first)
    assert (age[COUNT], period[COUNT], loss) == (2, 2, {COUNT: 3.0})
    assert (age[MINIMUM], age[AVERAGE], age[MAXIMUM]) == pytest.approx((10.0, 20.0, 30.0))
    assert (period[MINIMUM], period[AVERAGE], period[MAXIMUM]) == pytest.approx(
        (125.0, 187.5, 250.0))
    # The next window starts empty; losses are the total since the subscription.
    age, period, loss = map(points, second)
    assert loss == {COUNT: 4.0}
    for found in (age, period):
        assert found.pop(COUNT) == 0
        assert len(found) == 4
        assert unknown(*found.values())


def test_parts_of_the_reaction_time_their_sum_and_late_actions_are_published_once(node):
    statistics = ReactionTimeStatistics(node)
    statistics.add({})
    assert node.fire(101.0) == []
    parts = np.zeros((2, 1, 4), np.float32)
    parts[:, 0] = [[0.01, 0.0, 0.1, 0.02], [0.03, 0.0, 0.1, 0.04]]
    statistics.add({'reaction_time': parts, 'late_actions': np.array([[2], [3]])})
    received = node.fire(102.0)
    assert len(received) == 6
    assert not any(map(is_of_topic, received))
    found = {each.metrics_source: points(each) for each in received}
    total = found['reaction_time']
    assert (total[AVERAGE], total[MAXIMUM], total[COUNT]) == pytest.approx(
        (150.0, 170.0, 2), abs=1e-3)
    assert found['reaction_time_thinking'][AVERAGE] == pytest.approx(20.0, abs=1e-3)
    assert found['late_actions'] == {COUNT: 5.0}
    assert node.fire(103.0) == []


def test_the_newest_scalars_and_time_shares_are_published(node):
    values = {'agent_steps': 10, 'time/training/learn': 0.5, 'topics/policy/rate_hz': 3.0,
              'losses/loss': 0.25, 'charts/episodic_return': math.nan}
    RunScalars(node, lambda: values)
    # Without those that others report.
    assert [each.metrics_source for each in node.fire(101.0)] == [
        'scalar_agent_steps', 'scalar_losses/loss', 'scalar_charts/episodic_return']
    values['agent_steps'] = 20
    timer = ThreadTimer()
    ThreadTimeStatistics(node, {ACTING: timer})
    with timer('step'):
        found = list(map(read, node.fire(102.0)))
    assert found[0] == Scalar('/learner', 'agent_steps', 20.0)
    shares = [each for each in found if isinstance(each, Share)]
    assert {(each.thread, each.phase) for each in shares} == {(ACTING, 'step'), (ACTING, 'other')}
    assert sum(each.share for each in shares) == pytest.approx(1.0)


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


def test_a_run_uses_the_reports_of_its_learner_and_of_actors_in_its_namespace(node):
    found = TopicScalars(node, 'trajectories', 'policy')
    for source, age_ms in (('/learner:trajectories', 5.0), ('/actor_0:policy', 10.0),
                           ('/actor_1:policy', 20.0), ('/actor_2:policy', math.nan),
                           # Of another run, another topic, and malformed.
                           ('/team/actor_0:policy', 1e6), ('/actor_0:arm/motors', 1e6),
                           (':', 1e6)):
        message = report(source, stop=(12, 0))
        message.statistics = statistic_points([age_ms])
        node.receive(message)
    for message in (report('/learner:trajectories', LOSS, 'messages', t5=3.0), share(),
                    # Of another run, of no actor, and malformed.
                    share('/team/actor_0', 'time_acting_infer'),
                    share(metric='time_training_learn'), share(unit='percent')):
        node.receive(message)
    assert found.take() == {
        'topics/trajectories/age_mean_ms': 5.0, 'topics/trajectories/age_max_ms': 5.0,
        'topics/trajectories/rate_hz': 0.5, 'topics/trajectories/lost': 3.0,
        'topics/policy/age_mean_ms': 15.0, 'topics/policy/age_max_ms': 20.0,
        'topics/policy/rate_hz': 0.5, 'time/acting/step': 0.25}
    assert found.take() == {}

"""Scalars of a run are published each second and read; malformed reports are skipped."""

import math

import pytest
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from vdl_ros.ros import qos
from vdl_ros.ros.statistics.run_scalars import RunScalars, Scalar, is_scalar, read_scalar

AVERAGE = StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE


def report(source='/learner', metric='scalar_charts/SPS', unit='scalar', points=None):
    return MetricsMessage(
        measurement_source_name=source, metrics_source=metric, unit=unit,
        statistics=[StatisticDataPoint(data_type=kind, data=value)
                    for kind, value in ([(AVERAGE, 2.5)] if points is None else points)])


def test_a_report_is_read():
    assert read_scalar(report()) == Scalar('/learner', 'charts/SPS', 2.5)
    assert is_scalar(report(unit='ms'))
    assert not is_scalar(report(metric='time_acting_step'))


@pytest.mark.parametrize('change', [
    {'unit': 'ms'}, {'source': ''}, {'metric': 'scalar_'}, {'metric': 'charts/SPS'},
    {'metric': f'scalar_{"x" * 81}'}, {'points': []}, {'points': [(AVERAGE, math.nan)]},
    {'points': [(AVERAGE, math.inf)]}, {'points': [(AVERAGE, 1.0)] * 2},
    {'points': [(AVERAGE + 1, 1.0)]}])
def test_malformed_reports_are_skipped(change):
    assert read_scalar(report(**change)) is None


def test_what_a_tag_holds_cannot_clear_a_terminal():
    assert read_scalar(report(metric='scalar_\x1b[2J')).tag == '?[2J'


def test_the_newest_scalars_are_published_without_those_reported_elsewhere(peer):
    received = peer.listen(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
    scalars = {'agent_steps': 10, 'time/training/learn': 0.5, 'topics/policy/rate_hz': 3.0,
               'losses/loss': 0.25, 'charts/episodic_return': math.nan}
    RunScalars(peer.node, lambda: scalars)
    peer.until(lambda: len(received) >= 3, 'a report')
    assert [each.metrics_source for each in received[:3]] == [
        'scalar_agent_steps', 'scalar_losses/loss', 'scalar_charts/episodic_return']
    scalars['agent_steps'] = 20
    peer.until(lambda: any(read_scalar(each) == Scalar('/peer', 'agent_steps', 20.0)
                           for each in received), 'the newest')

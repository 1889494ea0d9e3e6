"""Reaction times of an actor are published each second while there are some."""

import numpy as np
import pytest
from statistics_msgs.msg import MetricsMessage, StatisticDataType

from vdl_ros.ros import qos
from vdl_ros.ros.statistics.reaction_time_statistics import (
    ReactionTimeStatistics,
    is_reaction_time,
)

KINDS = StatisticDataType


def test_parts_sum_and_late_actions_are_published_once(peer):
    received = peer.listen(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
    peer.until(lambda: peer.node.count_subscribers('/statistics') == 1, 'a subscription')
    statistics = ReactionTimeStatistics(peer.node)
    statistics.add({})
    statistics._publish()
    parts = np.zeros((2, 1, 4), np.float32)
    parts[:, 0] = [[0.01, 0.0, 0.1, 0.02], [0.03, 0.0, 0.1, 0.04]]
    statistics.add({'reaction_time': parts, 'late_actions': np.array([[2], [3]])})
    statistics._publish()
    statistics._publish()
    # As sent in order, nothing came for the empty seconds before.
    peer.until(lambda: len(received) >= 6, 'a report')
    assert len(received) == 6
    assert all(map(is_reaction_time, received))
    assert not is_reaction_time(MetricsMessage(metrics_source='message_age'))
    points = {each.metrics_source: {point.data_type: point.data for point in each.statistics}
              for each in received}
    assert {each.measurement_source_name for each in received} == {'/peer'}
    total = points['reaction_time']
    assert total[KINDS.STATISTICS_DATA_TYPE_AVERAGE] == pytest.approx(150.0, abs=1e-3)
    assert total[KINDS.STATISTICS_DATA_TYPE_MAXIMUM] == pytest.approx(170.0, abs=1e-3)
    assert total[KINDS.STATISTICS_DATA_TYPE_SAMPLE_COUNT] == 2
    assert points['reaction_time_thinking'][
        KINDS.STATISTICS_DATA_TYPE_AVERAGE] == pytest.approx(20.0, abs=1e-3)
    assert points['late_actions'] == {KINDS.STATISTICS_DATA_TYPE_SAMPLE_COUNT: 5.0}

"""ROS parameters from settings: checked, described, unknown ones rejected."""

from dataclasses import dataclass

import pytest
from rclpy.parameter import Parameter

from vdl_ros.common.settings import SettingError, setting
from vdl_ros.ros import parameters


@dataclass(frozen=True)
class One:
    count: int = setting(3, 'How many.', minimum=1, maximum=10)
    rate: float = setting(0.5, 'How fast.', minimum=0.0, maximum=2.0)
    loud: bool = setting(False, 'Whether it is loud.')
    kind: str = setting('alpha', 'Which it is.', choices=('alpha', 'beta'))


@dataclass(frozen=True)
class Two:
    limit: float = setting(1.0, 'How far.', minimum=0.0)


def test_only_parameters_that_are_set_are_returned_with_their_types(make_node):
    # Those of ROS itself are accepted.
    node = make_node('count:=5', 'loud:=true', 'rate:=2', 'use_sim_time:=false',
                     'qos_overrides./left/episodes.publisher.depth:=3')
    found = parameters.given(node, One, Two)
    assert found == {'count': 5, 'loud': True, 'rate': 2.0}
    assert type(found['rate']) is float


def test_invalid_parameters_are_named_with_the_reason(make_node):
    for word, message in (
            ('cuont:=5', r"^cuont: no such parameter of worker; did you mean 'count'\?$"),
            ('count:=5.0', '^count: 5.0 is not allowed: a whole number from 1 to 10$'),
            ('count:=[1, 2]', '^count: .* is not allowed')):
        with pytest.raises(SettingError, match=message):
            parameters.given(make_node(word), One, Two)


def test_declared_parameters_are_read_only_and_have_the_resolved_values(make_node):
    node = make_node('rate:=2', 'count:=5')
    values = parameters.given(node, One, Two) | {'kind': 'beta', 'not_ours': 1}
    parameters.declare(node, values, One, Two)
    assert {name: node.get_parameter(name).value
            for name in ('count', 'rate', 'loud', 'kind', 'limit')} == {
                'count': 5, 'rate': 2.0, 'loud': False, 'kind': 'beta', 'limit': 1.0}
    assert node.get_parameter('rate').type_ == Parameter.Type.DOUBLE
    assert not node.has_parameter('not_ours')
    assert not node.set_parameters([Parameter('count', value=4)])[0].successful
    count, rate, loud, kind, limit = (
        node.describe_parameter(name) for name in ('count', 'rate', 'loud', 'kind', 'limit'))
    # They are described, with their range.
    assert count.description == 'How many.'
    assert count.additional_constraints == 'a whole number from 1 to 10'
    assert [(each.from_value, each.to_value) for each in count.integer_range] == [(1, 10)]
    assert [(each.from_value, each.to_value) for each in rate.floating_point_range] == [(0.0, 2.0)]
    assert not loud.integer_range
    assert kind.additional_constraints == "one of 'alpha', 'beta'"
    assert not limit.floating_point_range
    assert limit.additional_constraints == 'a number, at least 0'
    assert all(each.read_only for each in (count, rate, loud, kind, limit))

"""Tolerances of a goal, by joint."""

import math

import pytest

from vdl_ros.arm.control.goal_tolerances import GoalTolerances, ToleranceError
from vdl_ros.arm.model.joints import JOINTS


def test_the_joint_that_is_too_far_is_named():
    error = dict.fromkeys(JOINTS, 0.0) | {'base': -0.3, 'elbow': math.nan}
    values = [error[name] for name in JOINTS]
    tolerances = GoalTolerances.of([('base', 0.4)], [('base', 0.25), ('elbow', 0.1)], 0.0)
    assert tolerances.late == math.inf
    assert tolerances.violation(values, at_goal=False) == ''
    assert tolerances.violation(values, at_goal=True) == (
        'base: 0.300 rad from its target, 0.25 rad are allowed')


def test_zero_and_less_demand_nothing():
    tolerances = GoalTolerances.of([('base', 0.0)], [('base', -1.0)], 2.0)
    assert tolerances.late == 2.0
    for at_goal in (False, True):
        assert tolerances.violation([9.0] * 5, at_goal=at_goal) == ''


@pytest.mark.parametrize(('given', 'error'), [
    (([('x\x1b', 0.1)], [], 0.0), r"path_tolerance: 'x\\x1b': no such joint; there are"),
    (([], [('base', math.nan)], 0.0), 'goal_tolerance: base: nan is not a finite number'),
    (([], [], -1.0), 'goal_time_tolerance: -1 s is not allowed: at least 0'),
])
def test_what_cannot_be_used_is_refused(given, error):
    with pytest.raises(ToleranceError, match=error):
        GoalTolerances.of(*given)

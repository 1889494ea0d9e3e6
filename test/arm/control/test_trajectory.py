"""Joint trajectories and tolerances of goals: interpolation, and refusal of invalid ones."""

import math
import re

import numpy as np
import pytest

from vdl_ros.arm.control.trajectory import (
    GoalTolerances,
    JointTrajectory,
    ToleranceError,
    TrajectoryError,
)
from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS

GEOMETRY = load()
START = np.array([0.1, 0.2, 0.3, 0.4, 0.05])


def test_points_are_joined_by_straight_lines_from_the_start():
    trajectory = JointTrajectory(
        ['elbow', 'base'], [[1.3, 0.5], [0.3, -0.5]], [2.0, 4.0], GEOMETRY)
    assert trajectory.joints == (0, 2)
    assert trajectory.duration == 4.0
    for time, base, elbow in ((0.0, 0.1, 0.3), (1.0, 0.3, 0.8), (2.0, 0.5, 1.3), (3.0, 0.0, 0.8),
                              (4.0, -0.5, 0.3), (99.0, -0.5, 0.3)):
        target = trajectory.target(time, START)
        assert target[[0, 2]] == pytest.approx([base, elbow])
        assert np.isnan(target[[1, 3, 4]]).all()
    assert [trajectory.ahead(time)[0] for time in (0.0, 1.9, 2.0, 4.0, 9.0)] == [
        0.5, 0.5, -0.5, -0.5, -0.5]
    assert np.isnan(trajectory.ahead(0.0)[[1, 3, 4]]).all()
    # Time 0 is at once.
    trajectory = JointTrajectory(['base'], [[0.5], [0.7]], [0.0, 1.0], GEOMETRY)
    assert trajectory.target(0.0, START)[0] == 0.5
    assert trajectory.target(0.5, START)[0] == pytest.approx(0.6)
    # Limits themselves are allowed.
    JointTrajectory(JOINTS, [GEOMETRY.lower.tolist(), GEOMETRY.upper.tolist()], [1, 2], GEOMETRY)


BAD = {
    'unknown joint': ((['base', 'elbw'], [[0, 0]], [1]), "'elbw': no such joint; there are base"),
    'forged line': ((['x\x1b[2J\n[FATAL] forged'], [[0]], [1]),
                    r"'x\x1b[2J\n[FATAL] forged': no such joint"),
    'endless name': ((['x' * 10**6], [[0]], [1]), f"'{'x' * 76}...: no such joint"),
    'named twice': ((['base', 'base'], [[0, 0]], [1]), 'base: named twice'),
    'no joint': (([], [[]], [1]), 'trajectory: no joint'),
    'no point': ((['base'], [], []), 'trajectory: no point'),
    'too many points': ((['base'], [[0]] * 10_001, range(10_001)),
                        'trajectory: 10001 points are not allowed: at most 10000'),
    'NaN': ((['base'], [[0.0], [math.nan]], [1, 2]), 'point 1: base: nan is not a finite'),
    'infinite': ((['base'], [[math.inf]], [1]), 'point 0: base: inf is not a finite number'),
    'beyond a limit': ((['base', 'wrist'], [[0, 1.2]], [1]),
                       'point 0: wrist: 1.2 rad is not allowed: from -0.96 to 0.96'),
    'standstill': ((['base'], [[0], [0]], [1, 1]), 'point 1: time 1 s is not after 1 s'),
    'negative time': ((['base'], [[0]], [-1]), 'point 0: time -1 s is not allowed'),
    'NaN time': ((['base'], [[0]], [math.nan]), 'point 0: time nan s is not allowed'),
    'a value missing': ((['base', 'elbow'], [[0, 0], [0]], [1, 2]),
                        'point 1: 1 positions for 2 joints'),
    'a time missing': ((['base'], [[0], [0]], [1]), '2 points but 1 times'),
}


def test_invalid_trajectory_is_refused_with_the_reason():
    for arguments, message in BAD.values():
        message = re.escape(message)
        with pytest.raises(TrajectoryError, match=f'^{message}|^trajectory: {message}') as caught:
            JointTrajectory(*arguments, GEOMETRY)
        assert '\n' not in str(caught.value)


def test_the_joint_that_is_too_far_from_its_goal_is_named():
    error = dict.fromkeys(JOINTS, 0.0) | {'base': -0.3, 'elbow': math.nan}
    values = [error[name] for name in JOINTS]
    tolerances = GoalTolerances.of([('base', 0.4)], [('base', 0.25), ('elbow', 0.1)], 0.0)
    assert tolerances.late == math.inf
    assert tolerances.violation(values, at_goal=False) == ''
    assert tolerances.violation(values, at_goal=True) == (
        'base: 0.300 rad from its target, 0.25 rad are allowed')
    # Zero and less demand nothing.
    tolerances = GoalTolerances.of([('base', 0.0)], [('base', -1.0)], 2.0)
    assert tolerances.late == 2.0
    for at_goal in (False, True):
        assert tolerances.violation([9.0] * 5, at_goal=at_goal) == ''
    for given, reason in (
            (([('x\x1b', 0.1)], [], 0.0), r"path_tolerance: 'x\\x1b': no such joint; there are"),
            (([], [('base', math.nan)], 0.0), 'goal_tolerance: base: nan is not a finite number'),
            (([], [], -1.0), 'goal_time_tolerance: -1 s is not allowed: at least 0')):
        with pytest.raises(ToleranceError, match=reason):
            GoalTolerances.of(*given)

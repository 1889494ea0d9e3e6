"""Plans of moves to places."""

import numpy as np
import pytest

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import TOLERANCE, Kinematics, Planner
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene

GEOMETRY = load()
UPRIGHT = np.zeros(5)


def tool0(positions):
    return Kinematics(GEOMETRY).pose(positions)[:3, 3]


def test_a_plan_takes_as_long_as_the_slowest_joint():
    collides = CollisionChecker(build_scene()).collides
    goal = Planner(GEOMETRY, collides).plan((0.15, 0.1, 0.15), UPRIGHT)
    assert goal.names == JOINTS[:4]
    reached = np.append(goal.positions, 0.0)
    assert tool0(reached) == pytest.approx([0.15, 0.1, 0.15], abs=TOLERANCE)
    away = np.abs(reached) / GEOMETRY.velocity
    assert goal.duration == pytest.approx(max(0.5, away.max()))


def test_a_plan_leaves_out_a_wrist_that_is_not_measured():
    goal = Planner(GEOMETRY).plan((0.15, 0.1, 0.15), [0.3, 0.2, 0.1, np.nan, np.nan])
    assert goal.names == JOINTS[:3]
    assert tool0([*goal.positions, 0.0, 0.0]) == pytest.approx([0.15, 0.1, 0.15], abs=TOLERANCE)
    with pytest.raises(ValueError, match='^base, elbow: not measured$'):
        Planner(GEOMETRY).plan((0.15, 0.1, 0.15), [np.nan, 0.2, np.nan, 0.0, 0.0])

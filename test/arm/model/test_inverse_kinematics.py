"""Inverse kinematics: the places of the task reach are reached, others are refused."""

import numpy as np
import pytest

from vdl_ros.arm.model.inverse_kinematics import TOLERANCE, InverseKinematics, UnreachableError
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.collisions import CollisionChecker
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.envs.owi535.workspace import Workspace

CHECKER = CollisionChecker(build_scene())
GEOMETRY = CHECKER.scene.geometry
KINEMATICS = Kinematics(GEOMETRY)
PLACES = 40
UPRIGHT = np.zeros(5)


def tool(positions):
    return KINEMATICS.pose(positions)[..., :3, 3]


@pytest.mark.parametrize(('joints', 'collides'), [
    (JOINTS[:4], None), (JOINTS[:4], CHECKER.collides), (JOINTS[:3], CHECKER.collides)],
    ids=['anywhere', 'free', 'three joints'])
def test_every_reachable_place_is_reached_within_a_millimetre(joints, collides):
    space = Workspace(CHECKER, straight=len(joints) == 3, count=4000)
    random = np.random.default_rng(1)
    starts = space.poses[space.draw(random, PLACES)]
    places = space.places[space.draw(random, PLACES)]
    inverse = InverseKinematics(GEOMETRY, collides)
    found = np.array([inverse.solve(place, start, joints)
                      for start, place in zip(starts, places, strict=True)])
    assert np.linalg.norm(tool(found) - places, axis=1).max() <= TOLERANCE
    assert (found >= GEOMETRY.lower).all()
    assert (found <= GEOMETRY.upper).all()
    still = [name not in joints for name in JOINTS]
    assert np.array_equal(found[:, still], starts[:, still])
    if collides is not None:
        assert not CHECKER.collides(found).any()
        # What lies between the poses that were checked touches at the most.
        ways = (start + np.linspace(0.0, 1.0, 60)[:, None] * (goal - start)
                for start, goal in zip(starts, found, strict=True))
        assert max(CHECKER.collides(way).mean() for way in ways) < 0.05


def test_the_soonest_of_several_solutions_is_chosen():
    inverse = InverseKinematics(GEOMETRY)
    for start in ([0.5, 0.4, 0.6, 0.3, 0.1], [-1.5, -0.9, 1.2, -0.5, 0.0]):
        assert inverse.solve(tool(start), start) == pytest.approx(np.array(start), abs=0.01)
    there = tool([0.0, 0.6, 0.9, 0.2, 0.0])
    near, far = [0.1, 0.5, 1.0, 0.2, 0.0], [0.0, 1.2, -0.9, -0.2, 0.0]
    one, other = inverse.solve(there, near), inverse.solve(there, far)
    assert inverse.travel_time(np.array(near), one) < 1.0
    assert inverse.travel_time(np.array(far), other) <= inverse.travel_time(np.array(far), one)


def test_places_that_cannot_be_reached_are_refused():
    inverse = InverseKinematics(GEOMETRY, CHECKER.collides)
    for place, reason in (
            ((0.9, 0.0, 0.1),
             r'\(0.9, 0, 0.1\) m is out of reach: tool0 comes to \d+.\d cm of it'),
            ((0.0, 0.0, 0.6), 'is out of reach'),
            ((0.0, -0.3, -0.2), 'is out of reach|without a collision'),
            ((0.2, 0.0, -0.01), 'cannot be reached straight from here without a collision')):
        with pytest.raises(UnreachableError, match=reason) as caught:
            inverse.solve(place, UPRIGHT)
        assert '\n' not in str(caught.value)
    for place in ((0.1, 0.2), (0.1, np.nan, 0.2)):
        with pytest.raises(ValueError, match='is not allowed: three finite numbers, m'):
            inverse.solve(place, UPRIGHT)


def test_a_collision_at_the_start_may_be_left():
    inverse = InverseKinematics(GEOMETRY, CHECKER.collides)
    start = np.array([0.0, 1.5, 0.75, 0.0, 0.0])
    assert CHECKER.collides(start[None]).all()
    assert inverse.is_free(start, UPRIGHT)
    assert not inverse.is_free(UPRIGHT, start)

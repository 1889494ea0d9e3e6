"""Kinematics, its Jacobian and inverse, against MuJoCo and the places of the task reach."""

import math

import mujoco
import numpy as np
import pytest

from vdl_ros.arm.geometry import expand, load, parse
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import TOLERANCE, InverseKinematics, Kinematics, UnreachableError
from vdl_ros.arm.simulation.scene import PREFIX, CollisionChecker, build_scene
from vdl_ros.envs.owi535.arm_task import Workspace

# Nothing of the defaults, so that no default can stand in two places.
ODD = {'shoulder_height': 0.07, 'upper_arm_length': 0.1, 'forearm_length': 0.12,
       'hand_length': 0.11, 'gripper_opening': 0.05, 'camera_distance': 0.6,
       'camera_elevation': 0.5, 'camera_azimuth': 2.0, 'camera_target_height': 0.1}
FRAMES = load().links


def random_positions(geometry, count, seed=0):
    return np.random.default_rng(seed).uniform(geometry.lower, geometry.upper, (count, 5))


@pytest.fixture(scope='module', params=[False, True], ids=['default', 'odd'])
def scene(request):
    if not request.param:
        return build_scene()
    # The right finger opens half as far, from elsewhere.
    urdf = expand(ODD)
    assert urdf.count('multiplier="1" offset="0"') == 1
    return build_scene(parse(urdf.replace(
        'multiplier="1" offset="0"', 'multiplier="0.5" offset="0.1"')))


@pytest.fixture(scope='module')
def kinematics(scene):
    return Kinematics(scene.geometry)


def test_frames_match_mujoco(scene, kinematics):
    positions = random_positions(scene.geometry, 100)
    poses = kinematics.poses(positions)
    assert set(poses) == set(FRAMES)
    data = mujoco.MjData(scene.model)
    for row, q in enumerate(positions):
        scene.set_positions(data, q)
        for frame in FRAMES:
            body = data.body(PREFIX + frame)
            found = poses[frame][row]
            assert np.abs(found[:3, 3] - body.xpos).max() < 1e-6, frame
            assert np.abs(found[:3, :3] - body.xmat.reshape(3, 3)).max() < 1e-6, frame


def test_poses_of_some_frames_match_poses_of_all(kinematics, scene):
    positions = random_positions(scene.geometry, 6).reshape(2, 3, 5)
    every = kinematics.poses(positions)
    some = kinematics.poses(positions, ('tool0', 'turntable'))
    assert list(some) == ['tool0', 'turntable']
    assert all(np.array_equal(pose, every[frame]) for frame, pose in some.items())
    pose = kinematics.pose(positions[1, 2])
    np.testing.assert_allclose(pose, every['tool0'][1, 2], atol=1e-12)
    with pytest.raises(KeyError, match='elbow_link: no such frame; there are base_link'):
        kinematics.pose(positions, 'elbow_link')


def test_jacobian_matches_mujoco(kinematics, scene):
    positions = random_positions(scene.geometry, 20, seed=1)
    data = mujoco.MjData(scene.model)
    whole = np.zeros((3, scene.model.nv))
    mirror = scene.model.joint(PREFIX + 'gripper_mirror').dofadr[0]
    multiplier = scene.geometry.joints['gripper_mirror'].multiplier
    for frame in ('tool0', 'right_finger', 'left_finger', 'forearm', 'base_link'):
        jacobian = kinematics.jacobian(positions, frame)
        assert jacobian.shape == (20, 3, 5)
        for q, found in zip(positions, jacobian, strict=True):
            scene.set_positions(data, q)
            body = scene.model.body(PREFIX + frame).id
            mujoco.mj_jacBody(scene.model, data, whole, None, body)
            expected = whole[:, scene.dof]
            expected[:, JOINTS.index('gripper')] += multiplier * whole[:, mirror]
            np.testing.assert_allclose(found, expected, atol=1e-8, err_msg=frame)


CHECKER = CollisionChecker(build_scene())
GEOMETRY = CHECKER.scene.geometry
KINEMATICS = Kinematics(GEOMETRY)
PLACES = 60
UPRIGHT = np.zeros(5)


def tool(positions):
    return KINEMATICS.pose(positions)[..., :3, 3]


@pytest.mark.parametrize('joints', [JOINTS[:4], JOINTS[:3]])
def test_every_reachable_place_is_reached_within_a_millimetre(joints):
    space = Workspace(CHECKER, straight=len(joints) == 3, count=4000)
    random = np.random.default_rng(1)
    starts = space.poses[space.draw(random, PLACES)]
    places = space.places[space.draw(random, PLACES)]
    inverse = InverseKinematics(GEOMETRY, CHECKER.collides)
    found = np.array([inverse.solve(place, start, joints)
                      for start, place in zip(starts, places, strict=True)])
    assert np.linalg.norm(tool(found) - places, axis=1).max() <= TOLERANCE
    assert (found >= GEOMETRY.lower).all()
    assert (found <= GEOMETRY.upper).all()
    still = [name not in joints for name in JOINTS]
    assert np.array_equal(found[:, still], starts[:, still])
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
        with pytest.raises(UnreachableError, match=reason):
            inverse.solve(place, UPRIGHT)
    for place in ((0.1, 0.2), (0.1, np.nan, 0.2)):
        with pytest.raises(ValueError, match='is not allowed: three finite numbers, m'):
            inverse.solve(place, UPRIGHT)


def test_a_collision_at_the_start_may_be_left():
    inverse = InverseKinematics(GEOMETRY, CHECKER.collides)
    start = np.array([0.0, 1.5, 0.75, 0.0, 0.0])
    assert CHECKER.collides(start[None]).all()
    assert inverse.is_free(start, UPRIGHT)
    assert not inverse.is_free(UPRIGHT, start)


def test_a_plan_takes_as_long_as_the_slowest_joint_and_leaves_out_a_wrist_that_is_not_measured():
    place = (0.15, 0.1, 0.15)
    goal = InverseKinematics(GEOMETRY, CHECKER.collides).plan(place, UPRIGHT)
    assert goal.names == JOINTS[:4]
    reached = np.append(goal.positions, 0.0)
    assert tool(reached) == pytest.approx(place, abs=TOLERANCE)
    assert goal.duration == pytest.approx(max(0.5, (np.abs(reached) / GEOMETRY.velocity).max()))
    inverse = InverseKinematics(GEOMETRY)
    goal = inverse.plan(place, [0.3, 0.2, 0.1, np.nan, np.nan])
    assert goal.names == JOINTS[:3]
    assert tool([*goal.positions, 0.0, 0.0]) == pytest.approx(place, abs=TOLERANCE)
    with pytest.raises(ValueError, match='^base, elbow: not measured$'):
        inverse.plan(place, [np.nan, 0.2, np.nan, 0.0, 0.0])


def test_joints_move_within_their_limits_and_into_nothing():
    inverse = InverseKinematics(GEOMETRY, CHECKER.collides)
    assert inverse.plan_joints({'elbow': 0.7, 'base': -0.35}, [0.0, 0.3, 0.0, np.nan, 0.0]) == (
        ('elbow', 'base'), (0.7, -0.35), pytest.approx(0.7 / GEOMETRY.velocity[2]))
    for name, position, reason in (
            ('elbow', 3.0, r'^elbow=3 is not allowed: from -2.793 to 2.793 rad$'),
            ('elbow', math.nan, r'^elbow=nan is not allowed'),
            ('wrist', 0.1, '^wrist: not measured$'),
            ('thumb', 0.1, "^'thumb': no such joint: base, shoulder, elbow, wrist, gripper$"),
            ('shoulder', 1.5, 'the arm would collide on its way')):
        with pytest.raises(ValueError, match=reason):
            inverse.plan_joints({name: position}, [0.0, 0.0, 0.75, np.nan, 0.0])

"""A policy outside of its environment: the same observations, and motors off for every reason."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.envs.owi535.arm_env import JointReading
from vdl_ros.envs.owi535.reach import FEATURES, ReachTask
from vdl_ros.envs.owi535.reach_runner import ReachableSpace, ReachRunner

GEOMETRY = load()
POSE = np.array([0.3, 0.4, 0.5, -0.2, 0.0])
TOOL = Kinematics(GEOMETRY).pose(POSE)[:3, 3]
FORWARD = np.array([[2, 1, 0, 2]])


class Recorder:
    """A policy that always turns the same motors, and what it saw."""

    def __init__(self, action=FORWARD):
        self.action, self.seen, self.fresh = action, [], []

    def __call__(self, observations, is_reset):
        self.seen.append(observations[0].copy())
        self.fresh.append(bool(is_reset[0]))
        return self.action


def runner(act=None, space=None, **options):
    # By default every place can be reached.
    space = space or SimpleNamespace(missing=lambda place, straight: 0.0)
    return ReachRunner(act or Recorder(), GEOMETRY, space, **options)


def reading(stamp, positions=POSE):
    return JointReading(np.array(positions, np.float64), np.array(stamp))


def running(**options):
    """Return a runner that moves at time 0."""
    found = runner(**options)
    found.set_target(TOOL + [0.0, 0.0, 0.1], 0.0)
    assert found.update(0.0, reading(0.0)).tolist() == [1, 0, -1, 1, 0]
    return found


def test_observations_are_those_of_the_environment():
    task, random = ReachTask(1, feedback='truth'), np.random.default_rng(3)
    seen = [task.reset(np.arange(1), random)[0]]
    act = Recorder()
    runs = runner(act, stale_after=1.0)
    place = task.targets[0].copy()
    # The same measurements at the same times, and the same commands.
    readings = [(0.0, task.reading.positions[0].copy(), float(task.reading.stamp[0]))]
    for _ in range(20):
        seen.append(task.step(FORWARD, random).observations[0])
        readings.append((float(task.time[0]), task.reading.positions[0].copy(),
                         float(task.reading.stamp[0])))
    runs.set_target(place, 0.0)
    for now, positions, stamp in readings:
        runs.update(now, reading(stamp, positions))
    assert act.fresh == [True] + [False] * 20
    np.testing.assert_allclose(act.seen, seen, atol=1e-6)


def test_velocities_survive_a_measurement_that_comes_twice():
    act = Recorder()
    runs = runner(act)
    # Without a target nothing moves.
    assert not runs.update(0.0, reading(0.0)).any()
    assert (runs.state, runs.reason) == ('idle', '')
    runs.set_target(TOOL, 0.0)
    for now, stamp in ((0.0, 0.0), (0.1, 0.1), (0.2, 0.1)):
        runs.update(now, reading(stamp, POSE + stamp * np.array([1.0, 0, 0, 0, 0])))
    velocity = [feature.name for feature in FEATURES].index('base_velocity')
    assert [each[velocity] for each in act.seen] == pytest.approx([0.0, 1.0, 1.0])
    # Joints that are not measured are not moved.
    blind = POSE.copy()
    blind[3:] = math.nan
    assert runs.update(0.3, reading(0.3, blind)).tolist() == [1, 0, -1, 0, 0]


def test_motors_pause_for_a_reason_and_go_on():
    for measured, paused, reason in (
            (None, '', 'no joint states'),
            (reading(0.1), '', 'the joint states are too old'),
            (reading(0.6), '', 'the joint states are of the future: clocks differ'),
            (reading(0.5, [math.nan, 0, math.nan, 0, 0]), '',
             'the joint states lack base, elbow'),
            (reading(0.5), 'no sign of life of the viewer', 'no sign of life of the viewer')):
        runs = running(stale_after=0.3)
        assert not runs.update(0.5, measured, paused).any(), reason
        assert (runs.state, runs.reason) == ('paused', reason)
        assert math.isnan(runs.distance)
        assert runs.update(0.6, reading(0.6)).any(), reason
        assert (runs.state, runs.reason) == ('running', '')
        # What was before the pause is no neighbour of what comes after it.
        assert runs._act.fresh == [True, True], reason
        assert not runs._act.seen[-1][4:8].any(), reason


def test_a_long_pause_or_a_clock_set_back_gives_the_target_up():
    runs = running(give_up_after=2.0)
    for now in np.arange(0.5, 3.2, 0.5):
        runs.update(now, None)
    assert (runs.state, runs.reason) == ('idle', 'no joint states, for 2 s')
    assert not runs.update(3.2, reading(3.2)).any()
    runs = running()
    assert not runs.update(-0.5, reading(-0.5)).any()
    assert (runs.state, runs.reason, runs.target) == ('idle', 'time went backward', None)
    assert not runs.update(-0.4, reading(-0.4)).any()


def test_success_needs_a_second_near_the_target():
    runs = runner(Recorder(np.array([[1, 1, 1, 1]])))
    runs.set_target(TOOL + [0.0, 0.0, 0.015], 0.0)
    for step in range(8):
        runs.update(0.1 * step, reading(0.1 * step))
    assert runs.distance == pytest.approx(0.015, abs=1e-5)
    # It leaves for a moment.
    runs.update(0.8, reading(0.8, POSE + [0.2, 0, 0, 0, 0]))
    for step in range(9, 19):
        runs.update(0.1 * step, reading(0.1 * step))
    assert not runs.success
    runs.update(1.9, reading(1.9))
    assert runs.success
    assert runs.time_to_target == pytest.approx(1.9)
    # No motor was on. A new target begins anew.
    assert math.isnan(runs.reaction_time)
    runs._act.action = FORWARD
    runs.set_target(TOOL + [0.0, 0.0, 0.1], 2.0)
    assert not runs.success
    runs.update(2.1, reading(2.1))
    assert runs.reaction_time == pytest.approx(0.1)


def test_targets_that_no_free_pose_reaches_are_refused_and_those_of_the_environment_are_not():
    space = ReachableSpace(GEOMETRY)
    for place, reached in (
            ([0.15, 0.1, 0.2], True), ([-0.1, -0.1, 0.3], True), ([0.0, 0.0, 1.0], False),
            ([0.6, 0.0, 0.1], False), ([0.1, 0.1, -0.1], False), ([0.0, 0.0, 0.05], False),
            ([math.nan, 0.1, 0.1], False)):
        runs = runner(space=space)
        runs.set_target(np.array(place), 0.0)
        assert runs.update(0.0, reading(0.0)).any() == reached, place
        if not reached:
            assert runs.state == 'idle', place
            assert runs.reason.startswith(
                'no pose without a collision comes nearer to the target'), place
    task, random = ReachTask(300, feedback='truth'), np.random.default_rng(11)
    task.reset(np.arange(300), random)
    assert not any(space.missing(place, straight=False) for place in task.targets)

"""The simulated arm: its model, motors, limits, collisions and pace; repeatable and finite."""

import dataclasses
import itertools
import math
import runpy

import mujoco
import numpy as np
import pytest

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.kinematics import InverseKinematics
from vdl_ros.arm.simulation import scene
from vdl_ros.arm.simulation.motor_model import GearMotors, SimulationConfig
from vdl_ros.arm.simulation.scene import PREFIX, add_cube, build_scene, cube_pose
from vdl_ros.arm.simulation.simulation import ArmSimulation, Pacer, PoseError
from vdl_ros.arm.simulation.twins import Gravity

GEOMETRY = load()
STEADY = SimulationConfig(speed_variation=0.0)
# Where each joint is free to move both ways.
MIDDLE = {'gripper': 0.17}


def simulation(seed=0, **settings):
    return ArmSimulation(dataclasses.replace(STEADY, **settings), seed, GEOMETRY)


def position(arm, joint):
    return arm.joint_positions[JOINTS.index(joint)]


def history(seed, **settings):
    arm = ArmSimulation(SimulationConfig(**settings), seed, GEOMETRY)
    random = np.random.default_rng(7)
    seen = []
    for episode in range(3):
        arm.reset({'shoulder': 0.3 * episode, 'gripper': 0.1})
        for _ in range(30):
            arm.command(Motors.of(random.integers(-1, 2, 5)))
            arm.step(0.037)
            seen.append(np.concatenate([arm.joint_positions, arm.joint_velocities]))
    return np.array(seen)


def test_an_older_mujoco_is_named(monkeypatch):
    monkeypatch.setattr(mujoco, '__version__', '3.9.0')
    with pytest.raises(ImportError, match='requires mujoco>=3.10, installed is 3.9.0'):
        runpy.run_path(scene.__file__)


def test_same_seed_and_calls_are_bitwise_equal():
    first = history(3)
    assert first.tobytes() == history(3).tobytes()
    assert first.tobytes() != history(4).tobytes()


def test_each_motor_turns_its_joint_at_the_speed_of_the_urdf():
    for joint, way in itertools.product(JOINTS, (1, -1)):
        arm = simulation(load_slowdown=0.0)
        arm.reset(MIDDLE | ({} if joint == 'gripper' else {joint: -0.3 * way}))
        others = np.delete(arm.joint_positions, JOINTS.index(joint))
        arm.command(Motors(**{joint: way}))
        arm.step(0.2)
        begun = position(arm, joint)
        arm.step(0.4)
        speed = (position(arm, joint) - begun) / 0.4
        assert speed == pytest.approx(way * GEOMETRY.joints[joint].velocity, rel=0.02), joint
        now = np.delete(arm.joint_positions, JOINTS.index(joint))
        assert now == pytest.approx(others, abs=0.005), joint


def test_speed_setting_applies_and_varies_at_reset():
    arm = simulation(speed_variation=0.1, base_speed=0.6)
    drawn = []
    for _ in range(100):
        arm.reset()
        drawn.append(arm._motors.speed / np.array([0.6, *GEOMETRY.velocity[1:]]))
    assert np.array(drawn).min() >= 0.9
    assert np.array(drawn).max() <= 1.1
    assert (np.ptp(drawn, axis=0) > 0.16).all()


def test_reset_pose_is_exact_and_stays():
    for pose in ([1, 0.5, 1.2, 0.5, 0.2], [0, -1.396, 0, 0, 0], [0, 1.571, -0.5, 0, 0],
                 [-2, -0.8, 1.9, -0.9, 0.35], [0, 0, 0, 0, 0]):
        arm = simulation()
        arm.command(Motors(1, 1, 1, 1, 1, lamp=True))
        arm.step(0.3)
        arm.reset(pose)
        assert arm.joint_positions.tolist() == pose
        assert not arm.joint_velocities.any(), pose
        arm.step(10.0)
        assert np.abs(arm.joint_positions - pose).max() < 1e-3, pose
    arm = ArmSimulation(STEADY, 0, load({'elbow_lower': 0.4}))
    assert arm.joint_positions.tolist() == [0, 0, 0.4, 0, 0], 'it cannot be upright'


def test_commands_are_delayed_keep_their_order_and_end_with_a_reset():
    arm = simulation(command_delay=0.1, start_delay=0.0, time_constant=0.0, dead_zone=0.0)
    arm.command(Motors(base=1, lamp=True))
    arm.step(0.02)
    arm.command(Motors(base=-1))
    arm.step(0.072)
    assert position(arm, 'base') == pytest.approx(0.0, abs=1e-9)
    arm.step(0.016)
    assert arm._command == Motors(base=1, lamp=True)
    arm.step(0.02)
    assert arm._command == Motors(base=-1)
    arm.command(Motors(base=1))
    arm.reset()
    arm.step(2.0)
    assert position(arm, 'base') == pytest.approx(0.0, abs=1e-6)


def test_joint_stops_at_its_limit_and_leaves_it_again():
    for joint, way in (('base', 1), ('shoulder', -1), ('wrist', 1), ('gripper', -1),
                       ('gripper', 1)):
        arm = simulation()
        limit = GEOMETRY.joints[joint]
        end = limit.upper if way > 0 else limit.lower
        # Nearly there, stretched up so that nothing is in the way.
        arm.reset({joint: end - way * 0.2})
        arm.command(Motors(**{joint: way}))
        furthest = -math.inf
        for _ in range(200):
            arm.step(0.02)
            furthest = max(furthest, way * position(arm, joint))
            assert np.abs(arm.joint_velocities).max() < 1.0
        assert furthest - way * end < 0.01, joint
        assert position(arm, joint) == pytest.approx(end, abs=0.005), joint
        # The clutch has slipped all the time: the way back is play and not what was wound up.
        arm.command(Motors(**{joint: -way}))
        arm.step(0.5)
        assert way * (end - position(arm, joint)) > 0.3 * limit.velocity * 0.5, joint


@pytest.mark.parametrize(('sag', 'timestep'), [
    (0.01, 0.004), *(pytest.param(*each, marks=pytest.mark.slow)
                     for each in ((0.001, 0.004), (0.01, 0.008), (0.1, 0.002)))])
def test_random_commands_keep_it_finite_and_within_limits(sag, timestep):
    arm = ArmSimulation(SimulationConfig(sag=sag, timestep=timestep), 1, GEOMETRY)
    random = np.random.default_rng(0)
    seen = []
    for _ in range(250):
        arm.command(Motors.of(random.integers(-1, 2, 5)))
        for _ in range(8):
            arm.step(0.1)
            seen.append(np.concatenate([arm.joint_positions, arm.joint_velocities]))
            assert arm.data.body(PREFIX + 'tool0').xpos[2] > -0.02
    seen = np.array(seen)
    assert np.isfinite(seen).all()
    assert (seen[:, :5] - GEOMETRY.upper).max() < 0.03
    assert (GEOMETRY.lower - seen[:, :5]).max() < 0.03
    assert np.abs(seen[:, 5:]).max() < 6.0
    # It has been everywhere, not stuck somewhere.
    assert (np.ptp(seen[:, :5], axis=0) > 0.45 * (GEOMETRY.upper - GEOMETRY.lower)).all()


def test_many_short_steps_equal_one_long_step_and_time_goes_on():
    long, short = simulation(), simulation()
    for arm in (long, short):
        arm.command(Motors(base=1, elbow=1))
    assert long.step(1.0) == 250
    assert sum(short.step(0.001) for _ in range(1000)) == 250
    assert long.joint_positions.tobytes() == short.joint_positions.tobytes()
    assert long.time == short.time == pytest.approx(1.0)
    # The requested time is ahead by less than a step.
    long.step(0.010)
    assert (long.time, long.requested_time) == pytest.approx((1.008, 1.010))
    long.reset()
    assert long.step(0.010) == 3
    assert long.time == long.data.time == long.requested_time == pytest.approx(1.020)


def test_a_cube_is_placed_rests_there_and_is_refused_within_the_arm():
    arm = ArmSimulation(scene=build_scene(furnish=add_cube))
    low = InverseKinematics(arm.geometry).solve([0.2, 0.0, 0.02], np.array([0, 0.6, 1.4, 0.6, 0]))
    arm.reset(cube=[0.18, 0.1, 0.5])
    arm.step(0.5)
    assert arm.cube == pytest.approx(cube_pose(0.18, 0.1, 0.5), abs=1e-3)
    for pose, place, message in (
            (low, [0.2, 0.0, 0.0], 'pose: cube would be inside left_finger'),
            (None, [0.2, 0.0], r'cube: \[0.2, 0.0\] is not allowed: x and y from -0.35 to 0.35 m'),
            (None, [math.nan, 0.0, 0.0], 'cube: '), (None, [0.0, 0.4, 0.0], 'cube: ')):
        with pytest.raises(PoseError, match=message):
            arm.reset(pose, place)
    arm.reset(low, [0.2, 0.2, 0.0])
    assert simulation().cube is None


def test_impossible_pose_is_refused_and_changes_nothing():
    arm, other = simulation(speed_variation=0.1), simulation(speed_variation=0.1)
    for each in (arm, other):
        each.command(Motors(base=1))
        each.step(0.5)
    for pose, message in (
            ({'shoulder': math.nan}, 'shoulder: nan is not allowed: from -1.396 to 1.571'),
            ({'wrist': 1.0}, 'wrist: 1 is not allowed: from -0.96 to 0.96'),
            ({'gripper': -0.1}, 'gripper: -0.1 is not allowed'),
            ({'elbw': 0.1}, "'elbw': no such joint; there are base, shoulder"),
            ({'elbow': None}, 'elbow: nan is not allowed'),
            ([0, 0, 0, 0], r'pose: shape \(4,\) is not \(5,\)'),
            ([[0] * 5], r'pose: shape \(1, 5\) is not'),
            ({'elbow': 2.7}, 'pose: hand would be inside table'),
            ([0.1, 0.5, -2.7, 0.1, 0.2], 'pose: hand would be inside base_link')):
        with pytest.raises(PoseError, match=message):
            arm.reset(pose)
    for each in (arm, other):
        each.step(0.5)
        each.reset()
    assert np.array_equal(arm.joint_positions, other.joint_positions)
    assert arm._motors.speed == other._motors.speed


def test_due_time_follows_wall_time_and_a_large_lag_is_dropped():
    for factor in (0.1, 4.0):
        pacer = Pacer(factor)
        assert pacer.due(100.0, 5.0) == 0.0
        assert pacer.due(100.05, 5.0) == pytest.approx(0.05 * factor)
        assert pacer.due(100.05, 5.0 + 0.08 * factor) == 0.0
        assert (pacer.due(105.0, 5.0), pacer.resyncs) == (0.0, 1)
        assert pacer.due(105.01, 5.0) == pytest.approx(0.01 * factor)
        # Also of a simulation that is far ahead.
        assert (pacer.due(105.01, 65.0), pacer.resyncs) == (0.0, 2)


def test_load_is_the_torque_of_gravity_on_the_arm_stretched_out():
    scene = build_scene()
    stretched = np.array([0.0, math.pi / 2, 0.0, 0.0, 0.0])
    assert np.abs(Gravity(scene)(stretched)) == pytest.approx(scene.load, rel=1e-3)
    assert (scene.load > 0.02).tolist() == [False, True, True, True, False]
    # The gear deflects by sag under it.
    assert (scene.load / scene.stiffen(0.02))[1:4] == pytest.approx(0.02)


# What one motor of 1 rad/s does whose joint follows its gear at once: settings, where it lies in
# its play, commands with their durations and torques, s and N m, and the angle of the gear, rad.
ALONE = (
    ({'start_delay': 0.1}, 0.0, [(1, 0.1, 0.0)], 0.0),
    ({'start_delay': 0.1}, 0.0, [(1, 0.5, 0.0)], 0.4),
    # A first-order delay costs its time constant of way, and gives it back on coasting.
    ({'time_constant': 0.05}, 0.0, [(1, 0.6, 0.0)], 0.55),
    ({'time_constant': 0.05}, 0.0, [(1, 0.6, 0.0), (0, 1.0, 0.0)], 0.6),
    # Play is lost on reversal only.
    ({'dead_zone': 0.1}, 1.0, [(1, 0.3, 0.0)], 0.3),
    ({'dead_zone': 0.1}, 1.0, [(1, 0.3, 0.0), (-1, 0.1, 0.0)], 0.3),
    ({'dead_zone': 0.1}, 1.0, [(1, 0.3, 0.0), (-1, 0.2, 0.0), (0, 0.1, 0.0), (-1, 0.1, 0.0)], 0.1),
    ({'dead_zone': 0.1}, -1.0, [(1, 0.3, 0.0)], 0.2),
    # Load changes the speed, but never turns it back or lets it run away.
    ({'load_slowdown': 0.2}, 0.0, [(1, 0.5, 0.5)], 0.4),
    ({'load_slowdown': 0.2}, 0.0, [(1, 0.5, -0.5)], 0.6),
    ({'load_slowdown': 0.2}, 0.0, [(-1, 0.5, 0.5)], -0.6),
    ({'load_slowdown': 0.9}, 0.0, [(1, 0.4, 100.0)], 0.0),
    ({'load_slowdown': 0.9}, 0.0, [(1, 0.4, -100.0)], 0.8))


def test_a_motor_starts_late_loses_its_play_on_reversal_and_is_slowed_by_load():
    ideal = SimulationConfig(
        dead_zone=0.0, start_delay=0.0, time_constant=0.0, load_slowdown=0.0, sag=0.01)
    for settings, play, moves, angle in ALONE:
        config = dataclasses.replace(ideal, **settings)
        motor = GearMotors(config, *map(np.atleast_1d, (1.0, -1.0, 1.0, 0.5, 0.05)))
        motor.place(np.zeros(1), np.array([play]))
        for command, seconds, torque in moves:
            for _ in range(round(seconds / config.timestep)):
                motor.step([command], [motor.target[0]], [torque])
        assert motor.target[0] == pytest.approx(angle, abs=config.timestep), (settings, moves)

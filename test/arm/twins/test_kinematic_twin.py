"""The kinematic twin against the simulation: random twins, random commands."""

import dataclasses

import numpy as np
import pytest

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.collisions import CollisionChecker
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.arm.simulation.simulation import ArmSimulation, PoseError
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.arm.twins.history import MEMORY
from vdl_ros.arm.twins.kinematic_twin import KinematicTwin
from vdl_ros.arm.twins.twin_parameters import TwinParameters

SCENE = build_scene()
GEOMETRY = SCENE.geometry
PERIOD = 0.1


def random_parameters(random, count):
    """Return arms whose parameters are spread over more than those of training."""
    return TwinParameters(
        speed=GEOMETRY.velocity * random.uniform(0.65, 1.35, (count, 5)),
        dead_zone=random.uniform(0.0, 0.08, count), start_delay=random.uniform(0.0, 0.08, count),
        time_constant=random.uniform(0.0, 0.1, count),
        load_slowdown=random.uniform(0.0, 0.5, count), sag=random.uniform(0.003, 0.03, count),
        command_delay=random.uniform(0.0, 0.25, count))


def free_poses(random, count):
    poses = random.uniform(GEOMETRY.lower, GEOMETRY.upper, (4 * count, 5))
    return poses[~CollisionChecker(SCENE).collides(poses)][:count]


def twin(count=1, parameters=None, poses=None, play=None):
    made = KinematicTwin(SCENE, count, PERIOD)
    made.reset(np.arange(count), np.zeros((count, 5)) if poses is None else poses,
               np.zeros((count, 5)) if play is None else play,
               parameters or TwinParameters.of(GEOMETRY, count))
    return made


@pytest.mark.parametrize('count', [6, pytest.param(24, marks=pytest.mark.slow)])
def test_joints_and_tool_agree_with_the_simulation(
        play_of_simulations, move_beside_simulations, count):
    periods = 60
    random = np.random.default_rng(5)
    parameters, poses = random_parameters(random, count), free_poses(random, count)
    batch = twin(count, parameters, poses, play_of_simulations(count))
    kinematics = Kinematics(GEOMETRY)
    joint_errors, tool_errors = [], []
    for positions, free in move_beside_simulations(
            batch, parameters, poses, PERIOD, periods, random):
        # From a contact on the two may differ: the twin knows none.
        truth, found = positions[free], batch.positions[free]
        joint_errors.append(np.abs(found - truth)[:, :4].reshape(-1))
        tool_errors.append(np.linalg.norm(
            kinematics.pose(found)[:, :3, 3] - kinematics.pose(truth)[:, :3, 3], axis=1))
    joints, tool = np.concatenate(joint_errors), np.concatenate(tool_errors)
    assert len(tool) > periods * count / 2
    assert joints.mean() < 0.004
    assert np.quantile(joints, 0.95) < 0.015
    assert joints.max() < 0.08
    assert tool.mean() < 0.002
    assert np.quantile(tool, 0.95) < 0.008
    assert tool.max() < 0.025


def steps(arm, count, *directions):
    for _ in range(count):
        arm.step(np.array([[each, 0, 0, 0, 0] for each in directions]))


def test_positions_before_are_those_of_the_past_also_of_a_held_arm():
    arm = twin(parameters=TwinParameters.of(GEOMETRY, 1))
    seen = [arm.positions[0, 0]]
    for _ in range(6):
        steps(arm, 1, 1)
        seen.append(arm.positions[0, 0])
    for back in range(int(MEMORY / PERIOD) + 1):
        found = arm.positions_before(np.array([back * PERIOD]))[0, 0]
        assert found == pytest.approx(seen[-1 - back])
    between = arm.positions_before(np.array([0.5 * PERIOD]))[0, 0]
    assert seen[-2] < between < seen[-1]
    arm = twin(2)
    steps(arm, 5, 1, 1)
    before = arm.positions.copy()
    for _ in range(20):
        steps(arm, 1, 1, 1)
        arm.hold(np.array([[True] * 5, [False, True, True, True, True]]))
    assert arm.positions[0].tolist() == before[0].tolist()
    for age in (0.0, 0.05):
        assert arm.positions_before(np.full(2, age))[0].tolist() == before[0].tolist()
    assert arm.positions[1, 0] > before[1, 0] + 0.5
    steps(arm, 5, -1, -1)
    assert arm.positions[0, 0] < before[0, 0] - 0.05


def test_reset_of_one_arm_does_not_touch_the_others():
    random = np.random.default_rng(0)
    parameters, poses = random_parameters(random, 3), free_poses(random, 3)
    one, other = twin(3, parameters, poses), twin(3, parameters, poses)
    directions = random.integers(-1, 2, (20, 3, 5))
    for step, each in enumerate(directions):
        one.step(each)
        other.step(each)
        if step == 9:
            one.reset(np.array([1]), poses[:1], np.zeros((1, 5)), random_parameters(random, 1))
            assert one.positions[1].tolist() == poses[0].tolist()
    assert one.positions[[0, 2]].tolist() == other.positions[[0, 2]].tolist()
    assert (one.positions[1] != other.positions[1]).any()


def test_parameters_of_one_arm_are_settings_of_the_simulation():
    config = SimulationConfig(
        base_speed=0.5, dead_zone=0.03, sag=0.02, command_delay=0.1, speed_variation=0.0)
    assert TwinParameters.of(GEOMETRY, 3, config).config(2) == dataclasses.replace(
        config, **{f'{name}_speed': GEOMETRY.joints[name].velocity for name in JOINTS[1:]})


def test_collisions_are_those_of_the_simulation():
    poses = np.random.default_rng(2).uniform(GEOMETRY.lower, GEOMETRY.upper, (200, 5))
    simulation = ArmSimulation(geometry=GEOMETRY)

    def refused(pose):
        try:
            simulation.check_collision(pose)
        except PoseError:
            return True
        return False

    expected = [refused(pose) for pose in poses]
    assert CollisionChecker(SCENE).collides(poses).tolist() == expected
    assert 20 < sum(expected) < 180

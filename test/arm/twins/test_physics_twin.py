"""The twins with contacts: against the simulation, one cube pushed and held, resets of some."""

import numpy as np
import pytest

from vdl_ros.arm.model.inverse_kinematics import InverseKinematics
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.collisions import CollisionChecker
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.arm.twins.physics_twin import PhysicsTwin
from vdl_ros.arm.twins.twin_parameters import TwinParameters
from vdl_ros.envs.owi535.cube_scene import CUBE, EDGE, add_cube
from vdl_ros.envs.owi535.twin_ranges import INSIDE

SCENE = build_scene(furnish=add_cube)
GEOMETRY = SCENE.geometry
PERIOD = 0.1
OPEN = GEOMETRY.upper[JOINTS.index('gripper')]


def twin(poses, cubes, parameters=None, friction=0.6, play=None):
    """Return arms at ``poses`` [B, 5] with cubes at ``cubes`` [B, 3]."""
    count = len(poses)
    made = PhysicsTwin(SCENE, count, CUBE, PERIOD)
    placed = np.column_stack([cubes, np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))])
    made.reset(np.arange(count), np.asarray(poses), np.zeros((count, 5)) if play is None else play,
               parameters or TwinParameters.of(GEOMETRY, count), placed, np.full(count, 0.03),
               np.full(count, friction))
    return made


@pytest.mark.parametrize('count', [6, pytest.param(16, marks=pytest.mark.slow)])
def test_joints_agree_with_the_simulation_without_contacts(
        play_of_simulations, move_beside_simulations, count):
    random = np.random.default_rng(0)
    poses = random.uniform(GEOMETRY.lower, GEOMETRY.upper, (200, 5))
    poses = poses[~CollisionChecker(SCENE).collides(poses)][:count]
    parameters = INSIDE.draw(random, GEOMETRY, count).parameters
    batch = twin(poses, np.tile([-0.4, 0.3, EDGE / 2], (count, 1)), parameters,
                 play=play_of_simulations(count))
    errors = []
    for truth, free in move_beside_simulations(batch, parameters, poses, PERIOD, 60, random):
        errors.append(np.abs(truth - batch.positions)[free].reshape(-1))
    found = np.concatenate(errors)
    assert len(found) > 60 * 5 * count / 3
    assert found.mean() < 0.0015
    assert np.quantile(found, 0.95) < 0.005
    assert found.max() < 0.015


def grip(friction):
    """Return an arm that has closed its gripper around a cube, and lifted it a little."""
    place = np.array([0.17, 0.0, 0.014])
    kinematics = InverseKinematics(GEOMETRY, CollisionChecker(build_scene(GEOMETRY)).collides)
    start = kinematics.solve([0.17, 0.0, 0.08], np.array([0.0, 0.3, 1.5, 0.9, OPEN]))
    down = kinematics.solve(place, start)
    arm = twin(down[None], [[*place[:2], EDGE / 2]], friction=friction)
    for _ in range(20):
        arm.step(np.array([[0, 0, 0, 0, -1]]))
    for _ in range(10):
        arm.step(np.array([[0, -1, 0, 0, 0]]))
    return arm


@pytest.mark.parametrize('friction', [0.4, 0.8])
def test_the_gripper_holds_a_cube_and_puts_it_down(friction):
    arm = grip(friction)
    kinematics = Kinematics(GEOMETRY)

    def cube_in_hand():
        hand = np.linalg.inv(kinematics.pose(arm.positions)[0])
        return (hand @ [*arm.object[0, :3], 1.0])[:3]

    held = cube_in_hand()
    assert arm.object[0, 2] > 0.03
    for _ in range(100):
        arm.step(np.array([[1, 0, 0, 0, 0]]))
    # It was carried around the base, for ten seconds, and did not creep out.
    assert arm.object[0, 1] > 0.1
    assert np.linalg.norm(cube_in_hand() - held) < 0.008
    for _ in range(20):
        arm.step(np.array([[0, 0, 0, 0, 1]]))
    assert arm.object[0, 2] == pytest.approx(EDGE / 2, abs=0.002)


def test_a_cube_that_is_pushed_moves_and_another_does_not():
    pose = InverseKinematics(GEOMETRY).solve([0.2, 0.0, 0.015], np.array([0, 0.6, 1.4, 0.6, 0.0]))
    arms = twin([pose, pose], [[0.2, 0.04, EDGE / 2], [0.2, -0.08, EDGE / 2]])
    before = arms.object
    for _ in range(20):
        arms.step(np.array([[1, 0, 0, 0, 0]] * 2))
    moved = (arms.object - before)[:, :3]
    assert moved[0, 1] > 0.05
    assert np.abs(moved[1]).max() < 0.001
    past = arms.object_before(np.array([0.0, 0.0]))
    assert past == pytest.approx(arms.object)
    assert arms.object_before(np.array([0.3, 0.0]))[0, 1] < arms.object[0, 1] - 0.01


def test_a_reset_of_one_arm_leaves_the_others_as_they_are():
    random = np.random.default_rng(1)
    directions = random.integers(-1, 2, (20, 2, 5))
    poses = np.array([[0.3, 0.2, 0.5, 0.1, 0.0]] * 2)
    cubes = [[0.25, 0.0, EDGE / 2]] * 2
    arms, undisturbed = twin(poses, cubes), twin(poses, cubes)
    for step, rows in enumerate(directions):
        if step == 10:
            heavy = np.array([0.05])
            arms.reset(np.array([0]), poses[:1], np.zeros((1, 5)),
                       INSIDE.draw(random, GEOMETRY, 1).parameters,
                       np.array([[0.2, 0.1, EDGE / 2, 1.0, 0.0, 0.0, 0.0]]), heavy, heavy)
        arms.step(rows)
        undisturbed.step(rows)
    assert np.array_equal(arms.positions[1], undisturbed.positions[1])
    assert np.array_equal(arms.object[1], undisturbed.object[1])
    assert arms.object[0, :2] == pytest.approx([0.2, 0.1], abs=0.01)
    # A period of parts of physics steps is refused.
    with pytest.raises(ValueError, match=r'^period: 0.05 is not allowed: a multiple of 0.02 s'):
        PhysicsTwin(SCENE, 1, CUBE, 0.05)

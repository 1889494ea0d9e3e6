"""The twins against the simulation: random twins and commands, contacts, resets of some."""


import numpy as np
import pytest

from vdl_ros.arm.geometry import EDGE
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.kinematics import InverseKinematics, Kinematics
from vdl_ros.arm.simulation.batched_motors import TwinParameters
from vdl_ros.arm.simulation.scene import CUBE, CollisionChecker, add_cube, build_scene
from vdl_ros.arm.simulation.simulation import ArmSimulation
from vdl_ros.arm.simulation.twins import MEMORY, KinematicTwin, PhysicsTwin
from vdl_ros.envs.owi535.arm_task import INSIDE

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


def assert_small(errors, *limits):
    """Check mean, 95 % quantile and maximum; docs/arm_learning.md has them."""
    found = errors.mean(), np.quantile(errors, 0.95), errors.max()
    print('in thousandths:', *(f'{1e3 * value:.2f}' for value in found))
    assert all(value < limit for value, limit in zip(found, limits, strict=True)), found


@pytest.mark.parametrize('count', [6, pytest.param(24, marks=pytest.mark.slow)])
def test_joints_and_tool_agree_with_the_simulation(count):
    periods = 80
    random = np.random.default_rng(5)
    parameters, poses = random_parameters(random, count), free_poses(random, count)
    batch = twin(count, parameters, poses, play_of_simulations(count))
    kinematics = Kinematics(GEOMETRY)
    joint_errors, tool_errors = [], []
    for positions, free in move_beside_simulations(batch, parameters, poses, periods, random):
        # From a contact on the two may differ: the twin knows none.
        truth, found = positions[free], batch.positions[free]
        joint_errors.append(np.abs(found - truth)[:, :4].reshape(-1))
        tool_errors.append(np.linalg.norm(
            kinematics.pose(found)[:, :3, 3] - kinematics.pose(truth)[:, :3, 3], axis=1))
    joints, tool = np.concatenate(joint_errors), np.concatenate(tool_errors)
    assert len(tool) > periods * count / 2
    assert_small(joints, 0.004, 0.015, 0.08)
    assert_small(tool, 0.002, 0.008, 0.025)


def turn_bases(arm, periods, *directions):
    for _ in range(periods):
        arm.step(np.array([[each, 0, 0, 0, 0] for each in directions]))


def test_positions_before_are_those_of_the_past_also_of_a_held_arm():
    arm = twin(parameters=TwinParameters.of(GEOMETRY, 1))
    seen = [arm.positions[0, 0]]
    for _ in range(6):
        turn_bases(arm, 1, 1)
        seen.append(arm.positions[0, 0])
    for back in range(int(MEMORY / PERIOD) + 1):
        found = arm.positions_before(np.array([back * PERIOD]))[0, 0]
        assert found == pytest.approx(seen[-1 - back])
    between = arm.positions_before(np.array([0.5 * PERIOD]))[0, 0]
    assert seen[-2] < between < seen[-1]
    arm = twin(2)
    turn_bases(arm, 5, 1, 1)
    before = arm.positions.copy()
    for _ in range(20):
        turn_bases(arm, 1, 1, 1)
        arm.hold(np.array([[True] * 5, [False, True, True, True, True]]))
    assert arm.positions[0].tolist() == before[0].tolist()
    for age in (0.0, 0.05):
        assert arm.positions_before(np.full(2, age))[0].tolist() == before[0].tolist()
    assert arm.positions[1, 0] > before[1, 0] + 0.5
    turn_bases(arm, 5, -1, -1)
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


def play_of_simulations(count):
    """Return the play of simulations 0 to N - 1 after a second reset, [N, 5]."""
    def draw(seed):
        random = np.random.default_rng(seed)
        for _ in range(2):
            random.uniform(size=len(JOINTS))  # speeds
            play = random.uniform(-1.0, 1.0, len(JOINTS))
        return play

    return np.array([draw(seed) for seed in range(count)])


def move_beside_simulations(batch, parameters, poses, steps, random):
    """Let a twin and simulations with its parameters take the same random commands.

    Yield the positions of the simulations, [N, 5], and which had no contact so far, [N].
    """
    count = len(poses)
    arms = [ArmSimulation(parameters.config(arm), arm, GEOMETRY) for arm in range(count)]
    for arm, pose in zip(arms, poses, strict=True):
        arm.reset(pose)
    free, directions = np.ones(count, bool), np.zeros((count, len(JOINTS)), int)
    for _ in range(steps):
        changed = random.random(directions.shape) < 0.2
        directions = np.where(changed, random.integers(-1, 2, directions.shape), directions)
        batch.step(directions)
        for index, arm in enumerate(arms):
            arm.command(Motors.of(directions[index]))
            arm.step(PERIOD)
            free[index] &= not (arm.data.contact.dist < 0.0).any()
        yield np.array([arm.joint_positions for arm in arms]), free


CUBE_SCENE = build_scene(furnish=add_cube)
OPEN = GEOMETRY.upper[JOINTS.index('gripper')]


def cube_twin(poses, cubes, parameters=None, play=None):
    """Return arms at ``poses`` [B, 5] with cubes at ``cubes`` [B, 3]."""
    count = len(poses)
    made = PhysicsTwin(CUBE_SCENE, count, CUBE, PERIOD)
    placed = np.column_stack([cubes, np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))])
    made.reset(np.arange(count), np.asarray(poses), np.zeros((count, 5)) if play is None else play,
               parameters or TwinParameters.of(GEOMETRY, count), placed, np.full(count, 0.03),
               np.full(count, 0.4))
    return made


@pytest.mark.parametrize('count', [6, pytest.param(16, marks=pytest.mark.slow)])
def test_joints_agree_with_the_simulation_without_contacts(count):
    random = np.random.default_rng(0)
    poses = random.uniform(GEOMETRY.lower, GEOMETRY.upper, (200, 5))
    poses = poses[~CollisionChecker(CUBE_SCENE).collides(poses)][:count]
    parameters = INSIDE.draw(random, GEOMETRY, count).parameters
    batch = cube_twin(poses, np.tile([-0.4, 0.3, EDGE / 2], (count, 1)), parameters,
                      play_of_simulations(count))
    errors = []
    for truth, free in move_beside_simulations(batch, parameters, poses, 60, random):
        errors.append(np.abs(truth - batch.positions)[free].reshape(-1))
    found = np.concatenate(errors)
    assert len(found) > 60 * 5 * count / 3
    assert_small(found, 0.0015, 0.005, 0.015)


def grip():
    """Return an arm that has closed its gripper around a cube, and lifted it a little."""
    place = np.array([0.17, 0.0, 0.014])
    kinematics = InverseKinematics(GEOMETRY, CollisionChecker(build_scene(GEOMETRY)).collides)
    start = kinematics.solve([0.17, 0.0, 0.08], np.array([0.0, 0.3, 1.5, 0.9, OPEN]))
    down = kinematics.solve(place, start)
    arm = cube_twin(down[None], [[*place[:2], EDGE / 2]])
    for _ in range(20):
        arm.step(np.array([[0, 0, 0, 0, -1]]))
    for _ in range(10):
        arm.step(np.array([[0, -1, 0, 0, 0]]))
    return arm


def test_the_gripper_holds_a_cube_and_puts_it_down():
    arm = grip()
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
    arms = cube_twin([pose, pose], [[0.2, 0.04, EDGE / 2], [0.2, -0.08, EDGE / 2]])
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
    arms, undisturbed = cube_twin(poses, cubes), cube_twin(poses, cubes)
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
        PhysicsTwin(CUBE_SCENE, 1, CUBE, 0.05)

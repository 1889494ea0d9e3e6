"""Push, and pick and place: Gymnasium's rules, seeds, success, failure, reward, measurements."""

import dataclasses
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from msgspec.structs import replace

import vdl_ros.envs  # noqa: F401
from benchmarks.arm_scripts import ScriptedController
from vdl_ros.arm.geometry import EDGE
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.owi535 import arm_task, cube
from vdl_ros.envs.owi535.arm_env import IN_FLIGHT, RATE, JointReading
from vdl_ros.envs.owi535.arm_task import CLOSE
from vdl_ros.envs.owi535.cube import (
    CubeObserver,
    CubeReading,
    PickPlaceTask,
    PushTask,
    cube_features,
    grip_point,
)
from vdl_ros.envs.owi535.robot_tasks import CUBE_FEATURES
from vdl_ros.envs.registration import PICK_PLACE, PUSH
from vdl_ros.robots.contract import ContractError
from vdl_ros.robots.contract_files import known_contracts, read_contract
from vdl_ros.robots.task import HISTORY, Measured, make_task

TASKS = [PushTask, PickPlaceTask]


def names(task):
    return [feature.name for feature in cube_features(task.motors)]


def off(task, count):
    return np.ones((count, len(task.motors)), np.int64)


def started(task, seed=0):
    """Return the random numbers and the first observations of a task."""
    random = np.random.default_rng(seed)
    return random, task.reset(np.arange(len(task.goals)), random)


@pytest.mark.parametrize('env_id', [PUSH, PICK_PLACE])
def test_gymnasium_accepts_it(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        check_env(gymnasium.make(env_id).unwrapped, skip_render_check=True)


def test_a_cube_within_two_centimetres_for_a_second_or_out_of_reach_ends_the_episode():
    task = PushTask(3, randomisation='none')
    random, _ = started(task)
    task.goals[:] = task.cubes[:, :3] + [[0.0, CLOSE - 0.002, 0.0], [0.0, CLOSE + 0.002, 0.0],
                                         [0.0, 0.1, 0.0]]
    outcomes = [task.step(off(task, 3), random) for _ in range(10)]
    assert not any(each.terminated.any() for each in outcomes)
    task._twin._state[2:, task._twin._pose] = [0.34, 0.0, EDGE / 2, 1.0, 0.0, 0.0, 0.0]
    last = task.step(off(task, 3), random)
    assert last.success.tolist() == [True, False, False]
    assert last.info['lost'].tolist() == [False, False, True]
    assert last.terminated.tolist() == [True, False, True]
    assert last.rewards[:2] == pytest.approx([
        arm_task.WITHIN * 0.1 + arm_task.SUCCESS - arm_task.STEP_COST, -arm_task.STEP_COST],
        abs=2e-3)


def test_the_dense_reward_is_progress_of_cube_and_gripper():
    task = PushTask(8, randomisation='none')
    random, _ = started(task)
    for _ in range(3):
        before = task.step(off(task, 8), random)
    away = task._tool_away.copy()
    after = task.step(np.tile([2, 1, 1, 0], (8, 1)), random)
    assert after.rewards == pytest.approx(
        cube.PROGRESS * (before.info['distance'] - after.info['distance'])
        + cube.APPROACH * (away - task._tool_away)
        - arm_task.STEP_COST - 2 * arm_task.SWITCH_COST)
    assert np.abs(away - task._tool_away).max() > 1e-5


@pytest.mark.parametrize('task', TASKS)
def test_cubes_and_goals_lie_in_the_area_and_no_arm_touches_its_cube(task):
    made = task(200)
    random, observations = started(made)
    cubes, goals = made.cubes[:, :3], made.goals
    assert all(row in task.observation_space for row in observations)
    for places in (cubes, goals):
        radius = np.linalg.norm(places[:, :2], axis=1)
        assert (radius >= cube.MIN_RADIUS - 1e-9).all()
        assert (radius <= cube.MAX_RADIUS + 1e-9).all()
    away = np.linalg.norm((goals - cubes)[:, :2], axis=1)
    assert away.min() >= cube.MIN_DISTANCE - 1e-9
    assert away.max() <= cube.MAX_DISTANCE + 1e-9
    assert (goals[:, 2] > EDGE).mean() == pytest.approx(task.lifted, abs=0.1)
    for _ in range(3):
        made.step(off(made, 200), random)
    assert np.abs(made.cubes[:, :3] - cubes).max() < 5e-4


def test_practice_begins_where_closing_the_gripper_holds_the_cube():
    task = PickPlaceTask(200, practice=0.25)
    started(task)
    tool = Kinematics(task.geometry).pose(task.positions)[:, :3, 3]
    around = np.linalg.norm(tool - task.cubes[:, :3], axis=1) < CLOSE
    assert around.mean() == pytest.approx(0.25, abs=0.1)
    with pytest.raises(EnvError, match='^practice: 2 is not allowed: 0 to 1$'):
        gymnasium.make(PICK_PLACE, practice=2)
    task = PickPlaceTask(32, practice=1.0)
    random, observations = started(task)
    assert all(row in task.observation_space for row in observations)
    cubes = task.cubes[:, :3].copy()
    task.step(off(task, 32), random)
    assert np.abs(task.cubes[:, :3] - cubes).max() < 1e-3
    closed = np.tile([1, 1, 1, 1, 0], (32, 1))
    for _ in range(15):
        task.step(closed, random)
    for _ in range(15):
        task.step(closed - [0, 1, 0, 0, 0], random)
    assert (task.cubes[:, 2] > EDGE).all()


def test_what_is_observed_of_the_cube_is_as_late_as_the_joints_and_has_an_error():
    task = PushTask(32, randomisation='held_out')
    random, observations = started(task)
    known = names(task)
    offsets = np.linalg.norm((task.cube_reading.place - task.cubes[:, :3])[:, :2], axis=1)
    assert (offsets >= 0.004 - 1e-9).all()
    assert (offsets <= 0.008 + 1e-9).all()
    place = task.cube_reading.place
    grip = [known.index(f'grip_from_tool_{axis}') for axis in 'xyz']
    tool = [known.index(f'tool_{axis}') for axis in 'xyz']
    assert observations[:, tool] + observations[:, grip] == pytest.approx(
        grip_point(place, task.goals, PushTask.behind), abs=1e-5)
    # A cube that is elsewhere since less than its age is not yet seen there.
    before = task.cube_reading.place.copy()
    task._twin._state[:, task._twin._pose.start] += 0.05
    task.step(off(task, 32), random)
    assert task.cube_reading.place == pytest.approx(before, abs=1e-3)
    for _ in range(3):
        task.step(off(task, 32), random)
    assert task.cube_reading.place[:, 0] == pytest.approx(before[:, 0] + 0.05, abs=1e-3)


def test_an_arm_in_a_mirror_observes_what_the_signs_of_its_space_say():
    task, random = PickPlaceTask(20), np.random.default_rng(0)
    observer = CubeObserver(task.geometry, JOINTS, task.behind)
    across, joints = np.array([1.0, -1.0, 1.0]), np.array([-1, 1, 1, 1, 1], np.int8)
    poses = random.uniform(task.geometry.lower, task.geometry.upper, (2, 20, len(JOINTS)))
    commands = random.integers(-1, 2, (20, IN_FLIGHT, len(JOINTS)), np.int8)
    places, angles = random.uniform(-0.25, 0.25, (2, 20, 3)), random.uniform(-3.0, 3.0, 20)

    def seen(of_joints, of_places, of_angles):
        now, before = (JointReading(of_joints * pose, np.full(20, stamp))
                       for pose, stamp in zip(poses, (5.0, 4.9), strict=True))
        cube, goal = of_places * places
        return observer.observe(now, before, np.full(20, 5.1), of_joints * commands,
                                CubeReading(cube, of_angles * angles), goal)

    signs = task.observation_space.signs
    assert seen(joints, across, -1.0) == pytest.approx(
        signs * seen(np.ones(5, np.int8), np.ones(3), 1.0), abs=1e-5)
    assert task.observation_space.action_signs.tolist() == joints.tolist()


def test_by_camera_the_wrist_stays_and_the_gripper_moves():
    task = PickPlaceTask(4, feedback='camera', randomisation='none')
    random, observations = started(task)
    assert not observations[:, names(task).index('wrist_measured')].any()
    before = task.positions.copy()
    for _ in range(10):
        task.step(np.tile([1, 1, 1, 2, 0], (4, 1)), random)
    moved = np.abs(task.positions - before)
    assert moved[:, JOINTS.index('wrist')].max() < 0.02
    assert moved[:, JOINTS.index('gripper')].min() > 0.1


@pytest.mark.parametrize(('task', 'robot'), [
    (PushTask, 'owi535_push'), (PickPlaceTask, 'owi535_pick_place')])
def test_a_robot_sees_and_gets_what_the_environment_gives(task, robot):
    made = task(1, randomisation='none', feedback='truth')
    random, expected = started(made, 1)
    controller = ScriptedController(made)
    on_robot = make_task(read_contract(known_contracts()[robot]))

    def measured(time, commands):
        _, angle = made.cube_reading
        values = [*made.reading.positions[0], *made.cube_reading.place[0], angle[0]]
        stamps = dict.fromkeys(('joints', 'cube'), float(made.reading.stamp[0]))
        ages = {name: float(made.time[0]) - stamp for name, stamp in stamps.items()}
        return Measured(dict(zip([*JOINTS, *CUBE_FEATURES], values, strict=True)), stamps, ages,
                        time, np.array(commands))

    commands = [np.zeros(len(task.motors))] * HISTORY
    before = measured(0.0, commands)
    on_robot.begin(before, np.random.default_rng(0))
    assert on_robot.observation_space.contains(on_robot.observe(before))
    on_robot.begin(before, np.random.default_rng(0))
    on_robot.target = made.goals[0]
    assert np.array_equal(on_robot.observe(before), expected[0])
    success = False
    for step in range(1, task.steps):
        action = controller.act(expected)
        outcome, expected = made.step(action, random), None
        expected = outcome.observations
        commands = [action[0] - 1.0, *commands[:-1]]
        after = measured(step / RATE, commands)
        reward = on_robot.reward(before, after)
        success = on_robot.success(after)
        assert not on_robot.failure(after)
        assert np.array_equal(on_robot.observe(after), expected[0])
        assert success == outcome.success[0]
        # Rewards count switched motors one step later here, where the command is in force.
        assert reward == pytest.approx(outcome.rewards[0], abs=0.02)
        before = after
        if success:
            break
    assert success


def test_a_contract_says_how_near_the_goal_is_enough():
    contract = read_contract(known_contracts()['owi535_push'])
    for close, allowed in ((0.05, True), (9.0, False)):
        changed = replace(contract, task=replace(contract.task, arguments={'close': close}))
        if not allowed:
            with pytest.raises(ContractError, match=r'close: 9.0 is not allowed: 0.001 to 1'):
                make_task(changed)
            continue
        task = make_task(changed)
        values = dict.fromkeys([*JOINTS, *CUBE_FEATURES], 0.1)
        near = Measured(values, {}, {}, 5.0, np.zeros((HISTORY, 4)))
        task.target = np.array([0.14, 0.1, 0.1])
        for _ in range(2):
            task.reward(near, near)
            near = dataclasses.replace(near, time=near.time + 1.0)
        assert task.success(near)


def test_images_show_cube_and_goal():
    env = gymnasium.make(PICK_PLACE, render_mode='rgb_array')
    env.reset(seed=0)
    image = env.render().astype(int)
    env.close()
    red, green, blue = image[..., 0], image[..., 1], image[..., 2]
    assert ((red > green + 60) & (red > blue + 60) & (green < 60)).sum() > 20
    assert ((green > red + 40) & (green > blue + 40)).sum() > 20

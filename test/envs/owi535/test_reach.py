"""The task reach, also from images: Gymnasium's rules, success, reward, collisions, images."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.render import ArmRenderer
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.owi535 import arm_task, reach
from vdl_ros.envs.owi535.arm_task import JITTER
from vdl_ros.envs.owi535.reach import FEATURES, ReachPixelsTask, ReachTask
from vdl_ros.envs.owi535.task_renderer import TaskRenderer
from vdl_ros.envs.registration import REACH, REACH_PIXELS

# To read the description takes a tenth of a second.
GEOMETRY = load()
NAMES = [feature.name for feature in FEATURES]
KINEMATICS = Kinematics(GEOMETRY)


def rolled(env, steps, seed=None):
    """Return observations [T + 1], rewards, terminated, truncated [T] of random actions."""
    random = np.random.default_rng(0)
    first, _ = env.reset(seed=seed)
    observations, *results, _ = zip(*(
        env.step(random.integers(0, 3, env.action_space.shape)) for _ in range(steps)),
        strict=True)
    return np.array([first, *observations]), *map(np.array, results)


def started(count, seed=0, **settings):
    """Return a task of arms after its first reset, its random numbers and observations."""
    task = ReachTask(count, **{'feedback': 'truth'} | settings)
    random = np.random.default_rng(seed)
    return task, random, task.reset(np.arange(count), random)


def test_gymnasium_accepts_it_and_refuses_unknown_arguments():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for env_id in (REACH, REACH_PIXELS):
            env = gymnasium.make(env_id).unwrapped
            check_env(env, skip_render_check=True)
            env.close()
    for argument in ('reward', 'randomisation', 'feedback'):
        with pytest.raises(EnvError, match=f"^{argument}: 'odd' is not allowed: one of "):
            gymnasium.make(REACH, **{argument: 'odd'})


def test_one_arm_and_a_vector_of_one_give_the_same():
    for settings in ({}, {'feedback': 'camera', 'reward': 'sparse', 'randomisation': 'held_out'}):
        one, many = gymnasium.make(REACH, **settings), gymnasium.make_vec(REACH, 1, **settings)
        for left, right in zip(rolled(one, 30, seed=4), rolled(many, 30, seed=4), strict=True):
            assert np.array_equal(left, right.reshape(left.shape))


def placed(task, distance):
    """Return the task after a reset, with every target ``distance`` above its tool0."""
    random = np.random.default_rng(3)
    task.reset(np.arange(len(task.positions)), random)
    task.targets[:] = KINEMATICS.pose(task.positions)[:, :3, 3] + [0.0, 0.0, distance]
    return random


@pytest.mark.parametrize(('reward', 'rate', 'steps'), [
    ('dense', 10.0, 10), ('sparse', 10.0, 10), ('dense', 50.0, 50)])
def test_success_is_a_second_within_two_centimetres_at_any_rate(reward, rate, steps):
    task = ReachTask(3, reward, randomisation='none', feedback='truth', rate=rate)
    random = placed(task, 0.018)
    off = np.ones((3, 4), np.int64)
    outcomes = [task.step(off, random) for _ in range(steps + 1)]
    assert [outcome.success.all() for outcome in outcomes] == [False] * steps + [True]
    assert task.time == pytest.approx([(steps + 1) / rate] * 3)
    if reward == 'sparse':
        assert [outcome.rewards.tolist() for outcome in outcomes] == [[0] * 3] * 10 + [[1] * 3]
    elif rate == 10.0:
        assert outcomes[-1].rewards == pytest.approx(
            arm_task.WITHIN * (1 - outcomes[-1].info['distance'] / arm_task.CLOSE)
            + arm_task.SUCCESS - arm_task.STEP_COST, abs=1e-3)
    random = placed(task, 0.025)
    assert not any(task.step(off, random).success.any() for _ in range(2 * steps))


def test_delays_are_added_to_those_of_the_twins():
    task, random, _ = started(8, command_delay=0.3, measurement_delay=0.4)
    start = task.positions.copy()
    moved = []
    for _ in range(12):
        assert task.step(np.tile([2, 1, 1, 1], (8, 1)), random).switched.max() <= 1
        age = task.time - task.reading.stamp
        assert (age >= 0.4).all()
        assert (age < 0.4 + 0.15 + JITTER + 1e-9).all()
        moved.append(np.abs(task.positions - start)[:, 0].max())
        # Where they were at that time.
        still = task.time - age <= 0.3
        assert task.reading.positions[still] == pytest.approx(start[still], abs=1e-6)
    assert max(moved[:3]) < 1e-6
    assert moved[-1] > 0.1


def travel(pose, poses):
    """Return the time until an arm at ``pose`` can be in one of ``poses``, s."""
    return max(reach.NO_TRAVEL, min(
        max(abs(pose[j] - other[j]) / GEOMETRY.velocity[j] for j in range(4)) for other in poses))


def test_the_dense_reward_is_progress_less_costs():
    task, random, _ = started(64, randomisation='none')
    before, here = task.step(np.ones((64, 4), np.int64), random), task.positions.copy()
    after = task.step(np.tile([2, 1, 1, 0], (64, 1)), random)
    travels = np.array([[travel(pose, poses) for pose, poses in zip(
        positions, task._at_target, strict=True)] for positions in (here, task.positions)])
    assert len(np.unique(travels)) > 64
    expected = (
        reach.PROGRESS * (before.info['distance'] - after.info['distance'])
        + reach.TRAVEL * (travels[0] - travels[1])
        + arm_task.WITHIN * (1 - after.info['distance'] / arm_task.CLOSE).clip(min=0)
        - arm_task.STEP_COST
        - 2 * arm_task.SWITCH_COST - reach.COLLISION_COST * after.info['collided'])
    assert after.rewards == pytest.approx(expected)


def test_some_commands_are_late_inside_the_ranges():
    for randomisation, share in (('inside', 0.25), ('held_out', 0.0), ('none', 0.0)):
        task, random, _ = started(2000, randomisation=randomisation)
        outcome = task.step(np.full((2000, 4), 2), random)
        # The observation has what was commanded, not what came.
        assert (outcome.observations[:, NAMES.index('base_command_1')] == 1).all()
        late = (task._motors == 0).all(axis=1)
        assert late.mean() == pytest.approx(share, abs=0.03), randomisation
        task.step(np.full((2000, 4), 2), random)
        # The mean of the square of a share that is uniform up to a half.
        late = (task._motors == 0).all(axis=1)
        assert late.mean() == pytest.approx(share**2 * 4 / 3, abs=0.03), randomisation


def test_an_obstacle_stops_the_arm_which_can_leave_it():
    task, random, _ = started(16, seed=1, randomisation='none')
    down = np.tile([1, 2, 2, 1], (16, 1))
    hit = np.zeros(16, bool)
    for _ in range(120):
        outcome = task.step(down, random)
        hit |= outcome.info['collided']
        tool = KINEMATICS.pose(task.positions)[:, :3, 3]
        assert tool[:, 2].min() > -0.005
    assert hit.all()
    stuck = task.positions.copy()
    for _ in range(10):
        task.step(np.tile([1, 0, 0, 1], (16, 1)), random)
    assert (np.abs(task.positions - stuck).max(axis=1) > 0.1).all()


def test_by_camera_the_wrist_is_neither_measured_nor_moved():
    task, random, _ = started(8, feedback='camera')
    wrist = task.positions[:, 3].copy()
    assert (np.abs(wrist) <= arm_task.STRAIGHT).all()
    for _ in range(20):
        observations = task.step(np.full((8, 4), 2), random).observations
    for name in ('wrist_measured', 'wrist_position', 'wrist_velocity', 'wrist_command_1'):
        assert not observations[:, NAMES.index(name)].any()
    assert np.abs(task.positions[:, 3] - wrist).max() < 0.05
    errors = observations[:, :3] - task.positions[:, :3]
    assert 0.005 < np.abs(errors).mean() < 0.1
    assert (observations[:, NAMES.index('age')] < 0.2).all()


def green(image):
    red, middle, blue = (image[..., channel].astype(int) for channel in range(3))
    return (middle > red + 40) & (middle > blue + 40)


def test_images_show_the_target_also_of_two_environments():
    one = gymnasium.make(REACH, render_mode='rgb_array')
    two = gymnasium.make_vec(REACH, 2, render_mode='rgb_array')
    one.reset(seed=0)
    two.reset(seed=1)
    image = one.render()
    assert image.shape == (240, 320, 3)
    images = two.render()
    one.close()
    images += two.render()
    assert np.array_equal(images[0], images[2])
    assert not np.array_equal(images[0], images[1])
    assert green(image).sum() > 30
    assert all(green(each).sum() > 30 for each in images)
    two.close()
    # The context is free again.
    with ArmRenderer(build_scene()) as plain:
        assert not green(plain.render(np.zeros(5))).any()


def test_a_reset_in_a_vector_replaces_image_and_numbers_and_render_shows_what_is_seen():
    envs = gymnasium.make_vec(REACH_PIXELS, 1, render_mode='rgb_array', max_episode_steps=2)
    envs.reset(seed=3)
    _, last, first = (envs.step(np.array([[2, 0, 1, 2]]))[0] for _ in range(3))
    assert not np.array_equal(last['image'], first['image'])
    # No command of the episode before.
    assert last['arm'][:, 9:17].any()
    assert not first['arm'][:, 9:17].any()
    assert np.array_equal(envs.render()[0][::4, ::4], first['image'][0])
    envs.close()


def test_the_numbers_are_those_of_reach_that_do_not_tell_the_target():
    plain, seen = gymnasium.make(REACH), gymnasium.make(REACH_PIXELS)
    blind = gymnasium.make(REACH_PIXELS, joints=False)
    whole = plain.reset(seed=1)[0]
    numbers = seen.reset(seed=1)[0]['arm']
    kept = [index for index, feature in enumerate(FEATURES) if not any(
        word in feature.name for word in ('target', 'approach', 'turn', 'nearness'))]
    assert np.array_equal(numbers, whole[kept])
    blind.reset(seed=1)
    commands = blind.step([2, 0, 1, 1])[0]['arm']
    assert commands.tolist() == [1, -1, 0, 0] + 28 * [0]
    seen.close()
    blind.close()


def test_the_image_shows_arm_and_target_as_old_as_the_measurement():
    task = ReachPixelsTask(3, randomisation='held_out', feedback='truth')
    random = np.random.default_rng(0)
    images = task.reset(np.arange(3), random)['image']
    assert all(green(image).sum() > 15 for image in images)
    assert not np.array_equal(images[0], images[1])
    for _ in range(8):
        images = task.step(np.full((3, 4), 2), random).observations['image']
    renderer = TaskRenderer(84, 84, rod=True)
    age = task.time - task.reading.stamp
    assert (age > 0.15).all()
    late = task._twin.positions_before(age)
    for row, image in enumerate(images):
        assert np.array_equal(image, renderer.render(late[row], task.targets[row]))
        assert not np.array_equal(image, renderer.render(task.positions[row], task.targets[row]))
    renderer.close()
    task.close()


def test_the_rod_tells_near_and_far_apart_and_two_sizes_can_be_drawn():
    renderer, large = TaskRenderer(84, 84, rod=True), TaskRenderer()
    images = [renderer.render(np.zeros(5), np.array(target)) for target in (
        [0.12, -0.12, 0.1], [0.2, -0.2, 0.0667])]
    bottoms = [np.flatnonzero(green(image).any(axis=1)).max() for image in images]
    assert bottoms[1] - bottoms[0] > 3
    target = np.array([0.2, -0.2, 0.0667])
    assert large.render(np.zeros(5), target).shape == (240, 320, 3)
    assert np.array_equal(renderer.render(np.zeros(5), target), images[1])
    renderer.close()
    large.close()

"""Reach from images: Gymnasium's rules, what the image shows and when, what stands beside it."""

import warnings

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.reach import FEATURES, ReachPixelsTask
from vdl_ros.envs.owi535.task_renderer import TaskRenderer
from vdl_ros.envs.registration import REACH, REACH_PIXELS


def green(image):
    red, middle, blue = (image[..., channel].astype(int) for channel in range(3))
    return (middle > red + 30) & (middle > blue + 30)


def test_gymnasium_accepts_it_and_the_factory_makes_an_image_with_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        env = gymnasium.make(REACH_PIXELS).unwrapped
        check_env(env, skip_render_check=True)
        env.close()
    env = factory.make(EnvConfig(env_id=REACH_PIXELS, num_envs=2), seed=0)
    space = env.single_observation_space
    assert isinstance(space, ImageAndVector)
    assert (space.image.shape, space.vector_size) == ((84, 84, 3), 45)
    env.close()


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

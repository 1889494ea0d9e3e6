"""Test environments: observations, rewards and episodes as documented."""

import numpy as np

from vdl_ros.envs.dummy import PIXEL_FRAMES, episode_length
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make


def made(*env_ids, num_envs=2):
    """Return environments and their first observations."""
    envs = [make(EnvConfig(env_id=each), seed=5, num_envs=num_envs) for each in env_ids]
    return *envs, *(each.reset()[0] for each in envs)


def test_counter_counts_episodes_steps_and_ends():
    env, observations = made('vdl/Counter-v0', num_envs=3)
    identities = observations[:, 2].astype(int)
    assert len(set(identities)) == 3
    expected = [(0, 0)] * 3
    for _ in range(200):
        observations, rewards, terminated, truncated, _ = env.step(np.zeros(3, np.int64))
        for b, identity in enumerate(identities):
            episode, time = expected[b]
            over = time == episode_length(episode, identity)
            expected[b] = episode, time = (episode + 1, 0) if over else (episode, time + 1)
            assert observations[b].tolist() == [episode, time, identity]
            assert rewards[b] == time
            over = time == episode_length(episode, identity)
            assert terminated[b] == (over and episode % 2 == 0)
            assert truncated[b] == (over and episode % 2 == 1)
    env.close()
    assert min(episode for episode, _ in expected) > 10
    assert [episode_length(0, 0), episode_length(1, 0), episode_length(0, 8)] == [5, 12, 13]
    assert {episode_length(episode, 3) for episode in range(11)} == set(range(5, 16))


def test_pixel_counter_is_the_counter_in_stacked_frames():
    clock, pixels, _, stacks = made('vdl/Counter-v0', 'vdl/PixelCounter-v0')
    shown = [[] for _ in range(2)]
    restarts = [True, True]
    for count in range(400):
        for b in range(2):
            shown[b] = [0] * (PIXEL_FRAMES - 1) if restarts[b] else shown[b][1:]
            shown[b].append(1 + count % 255)
        assert stacks.dtype == np.uint8
        assert (stacks == np.array(shown)[:, :, None, None]).all()
        times, *clock_result, _ = clock.step(np.zeros(2, np.int64))
        stacks, *pixel_result, _ = pixels.step(np.zeros(2, np.int64))
        assert np.array_equal(clock_result, pixel_result)
        restarts = times[:, 1] == 0


def test_mixed_counter_is_the_counter_as_image_and_numbers():
    clock, pixels, mixed, counts, stacks, rows = made(
        'vdl/Counter-v0', 'vdl/PixelCounter-v0', 'vdl/MixedCounter-v0')
    for _ in range(100):
        images, vectors = mixed.single_observation_space.split(rows)
        assert (images == stacks[:, :, :1, :1]).all()
        for vector, (episode, time, identity) in zip(vectors, counts.astype(int), strict=True):
            one_hot = [0, 0, 0]
            one_hot[time % 3] = 1
            count = np.array([episode, time, identity], np.float32) / np.float32(1000)
            assert vector.tolist() == [*count.tolist(), *one_hot, time % 2, episode % 2]
        counts, *result, _ = clock.step(np.zeros(2, np.int64))
        stacks, *_ = pixels.step(np.zeros(2, np.int64))
        rows, *mixed_result, _ = mixed.step(np.ones((2, 2), np.int64))
        assert np.array_equal(mixed_result, result)

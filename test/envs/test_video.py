"""Videos contain the episode that the policy played."""

import av
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

from vdl_ros.envs.checked_vector_env import EnvError, EnvFailedError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make
from vdl_ros.envs.video import enlarge, only_image, record_episodes


def decode(path):
    """Return codec, images per second and images uint8 [N, H, W, 3] of a video."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        images = np.stack([frame.to_ndarray(format='rgb24') for frame in container.decode(stream)])
        return stream.codec_context.name, float(stream.average_rate), images


def test_video_of_a_solved_task(tmp_path):
    given = []

    def act(observations, is_reset, rewards):
        assert observations.shape == (1, 2)
        given.append((bool(is_reset[0]), float(rewards[0])))
        return np.clip(5 * (observations[:, 1:] - observations[:, :1]), -1, 1).astype(np.float32)

    path = tmp_path / 'deep' / 'reach.mp4'
    (total,), length = record_episodes(EnvConfig(env_id='vdl/Reach1D-v0'), 3, act, path)
    codec, fps, images = decode(path)
    assert codec == 'h264'
    assert fps == 10
    assert 1 < length < 20
    assert [first for first, _ in given] == [True] + [False] * (length - 1)
    assert given[0][1] == 0
    # The last step, onto the goal, is worth 0.
    assert sum(reward for _, reward in given) == pytest.approx(total)
    # The image before the first step, and one of each step; 48 x 160 is enlarged by 7.
    assert images.shape == (length + 1, 336, 1120, 3)
    white = (images[:, 168] > 200).all(axis=2)
    places = [np.flatnonzero(row).mean() for row in white]
    # The white point travels one way, and it ends on the goal.
    assert len(set(np.sign(np.diff(places[:-1])))) == 1
    assert [path] == list(path.parent.iterdir())


def test_episodes_follow_one_another(tmp_path):
    starts, path = [], tmp_path / 'reach.mp4'

    def act(observations, is_reset, rewards):
        starts.append(bool(is_reset[0]))
        return np.clip(5 * (observations[:, 1:] - observations[:, :1]), -1, 1).astype(np.float32)

    def record(**more):
        return record_episodes(EnvConfig(env_id='vdl/Reach1D-v0'), 3, act, path, **more)

    returns, length = record(episodes=3)
    assert len(set(returns)) == starts.count(True) == 3
    # The policy is asked once more for each reset between two episodes.
    assert len(decode(path)[2]) == len(starts) + 1 == length + 3
    first, first_length = record()
    assert first == returns[:1]
    # Short episodes are repeated until there is something to see.
    assert len(record(min_steps=first_length + 1)[0]) == 2


def test_a_number_of_steps_or_a_time_ends_the_video(tmp_path):
    path = tmp_path / 'pong.mp4'
    for limit, length in (({'max_steps': 5}, 5), ({'max_time': 0.0}, 0)):
        _, found = record_episodes(
            EnvConfig(env_id='ALE/Pong-v5'), 0, lambda *_: np.array([0]), path, **limit)
        _, fps, images = decode(path)
        assert (found, fps, len(images)) == (length, 15, length + 1)


def test_an_image_of_floats_is_scaled_and_what_is_no_image_is_named():
    env = make(EnvConfig(), seed=0, num_envs=1)
    image, limits = np.full((2, 3, 3), 0.5), r'is not allowed: \[height, width, 3\], from 0 to 255'
    # Transparency is left out.
    clear = np.full((2, 3, 4), [0.5, 0.5, 0.5, 0.0])
    for given, value in ((image, 128), (image * 300, 150), (image.astype(np.uint8) + 7, 7),
                         (clear, 128)):
        env.env.render = lambda given=given: (given,)
        assert only_image(env).dtype == np.uint8
        assert (only_image(env) == value).all()
    for given in (image - 1, image * np.nan, image[..., 0], [image], 'image'):
        env.env.render = lambda given=given: (given,)
        with pytest.raises(EnvError, match=rf'render\(\): an array .* {limits}'):
            env.render()


class Drawn(gymnasium.Wrapper):
    """Draws images of the given sizes, or what is no image."""

    def __init__(self, env, rate, *sizes):
        super().__init__(env)
        self.sizes, self.metadata = list(sizes), {**env.metadata, 'render_fps': rate}

    def render(self):
        size = self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]
        return size and np.zeros((size, 64, 3), np.uint8)


def test_what_makes_no_video_is_named_with_its_environment(monkeypatch, tmp_path):
    def record(*given):
        monkeypatch.setitem(gymnasium.registry, 'test/Drawn-v0', EnvSpec(
            'test/Drawn-v0', lambda **more: Drawn(CartPoleEnv(**more), *given)))
        record_episodes(EnvConfig(env_id='test/Drawn-v0'), 0, lambda *_: np.array([0]), path)

    path = tmp_path / 'x.mp4'
    for given, reason in (
            ((30, 64, 72), r'render\(\): an image \(72, 64, 3\) is not allowed after one \(64, '),
            ((30, None), r'render\(\) returns no image'),
            (('fast', 64), r"metadata\['render_fps'\] 'fast' is not allowed: a number above 0")):
        with pytest.raises(EnvFailedError, match=f'^env_id: test/Drawn-v0: {reason}'):
            record(*given)
        assert not list(tmp_path.iterdir())
    record(None, 64)
    assert decode(path)[1] == 30


def test_small_images_are_enlarged_and_sides_are_even():
    assert enlarge(np.zeros((48, 160, 3), np.uint8)).shape == (336, 1120, 3)
    # Not the short side of a strip, whose long one would have 32,000.
    assert enlarge(np.zeros((10, 1000, 3), np.uint8)).shape == (20, 2000, 3)
    assert enlarge(np.zeros((1, 3000, 3), np.uint8)).shape == (2, 6000, 3)
    image = np.arange(331 * 401 * 3).reshape(331, 401, 3).astype(np.uint8)
    assert np.array_equal(enlarge(image), image[:330, :400])

"""ale-py's vector environment has the properties that envs/atari.py lists."""

import numpy as np
import torch

from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make

NOTHING, FIRE = 0, 1


def game(name, seed=0, num_envs=2, render=False, **settings):
    return make(EnvConfig(env_id=f'ALE/{name}-v5', **settings), seed, num_envs, render)


def is_first(stacks):
    """Return bool [B]: is only the newest picture of a stack not black."""
    seen = stacks.any(axis=(2, 3))
    return ~seen[:, :-1].any(axis=1) & seen[:, -1]


def test_settings_reach_the_emulator():
    env = game('Pong', num_envs=12)
    observations, info = env.reset()
    assert observations.shape == (12, 4, 84, 84)
    assert env.single_action_space.n == 6
    # Within the default of noop_max.
    frames = info['episode_frame_number']
    assert 1 <= frames.min() < frames.max() < 30
    assert len(set(frames)) > 4
    env.close()
    env = game('Pong', full_action_space=True, screen_size=50, frame_stack=2, frame_skip=7,
               noop_max=0)
    observations, info = env.reset()
    assert env.single_action_space.n == 18
    assert observations.shape == (2, 2, 50, 50)
    # No idle frames: only the one in which FIRE was pressed.
    assert (info['episode_frame_number'] == 1).all()
    *_, info = env.step(np.zeros(2, np.int64))
    assert (info['episode_frame_number'] == 8).all()
    env.close()


def shrunk(image):
    """Return an image [210, 160, 3] as of universe-starter-agent: bilinear, to 80, to 42."""
    image = torch.tensor(image[34:194]).permute(2, 0, 1)[None].float()
    for size in (80, 42):
        image = torch.nn.functional.interpolate(
            image, (size, size), mode='bilinear', align_corners=False, antialias=False)
    return image[0].mean(0).numpy()


def test_frames_as_of_universe_starter_agent():
    env = game('Pong', render=True, frame_processing='universe', frame_stack=2, screen_size=42,
               time_limit=9)
    before, _ = env.reset()
    over = np.ones(2, bool)
    for _ in range(30):
        now, _, terminated, truncated, _ = env.step(np.array([2, 3]))
        assert now.shape == (2, 2, 42, 42)
        for observation, image in zip(now, env.render(), strict=True):
            difference = np.abs(observation[-1] - shrunk(image))
            # The drawn copy has the brighter of the last two frames: only what moves differs.
            assert np.median(difference) <= 0.5
            assert (difference > 1).sum() < 60
        assert not now[over, 0].any()
        assert np.array_equal(now[~over, 0], before[~over, 1])
        over = terminated | truncated
        before = now
    env.close()


def test_lost_life_ends_the_episode_but_the_game_goes_on(monkeypatch):
    """Breakout, played badly enough to lose all lives."""
    env = game('Breakout', num_envs=1, episodic_life=True)
    taken, step = [FIRE], env.unwrapped.step

    def rewarded(actions):
        taken.append(actions[0])
        observations, rewards, *more = step(actions)
        return observations, rewards + 1, *more

    monkeypatch.setattr(env.unwrapped, 'step', rewarded)
    observation, info = env.reset()
    rows = [(observation, 0.0, False, False, info['lives'][0])]
    while sum(row[2] for row in rows) < 6 or rows[-1][2]:
        action = (FIRE, NOTHING, NOTHING, 2)[(len(rows) - 1) % 4]
        observation, reward, terminated, _, info = env.step(np.array([action]))
        rows.append((
            observation, reward[0], terminated[0],
            terminated[0] and not info['life_lost'][0], info['lives'][0]))
    env.close()
    ends = [t for t, row in enumerate(rows) if row[2]]
    # Five lives one after the other, then a new game.
    assert [rows[t][4] for t in ends] == [4, 3, 2, 1, 0, 4]
    assert [rows[t][3] for t in ends] == [False] * 4 + [True, False]
    for t in ends:
        before, after = rows[t], rows[t + 1]
        assert not after[2]
        game_over = before[3]
        # The step after a lost life has no reward, and presses FIRE.
        assert game_over or (after[1], taken[t + 1]) == (0, FIRE)
        assert is_first(after[0])[0] == game_over
        assert np.array_equal(after[0][:, :-1], before[0][:, 1:]) == (not game_over)
        assert after[4] == (5 if game_over else before[4])


def test_a_life_begins_with_fire_whoever_plays():
    env = game('Breakout', num_envs=1)
    env.reset()
    steps, terminated = 0, [False]
    # Without FIRE a new ball does not appear, and a game goes on for 27,000 steps.
    while not terminated[0]:
        *_, terminated, _, info = env.step(np.array([NOTHING]))
        assert 'life_lost' not in info
        steps += 1
        assert steps < 1000
    assert info['lives'][0] == 0
    env.close()


def test_rendered_images_show_the_played_game():
    seen, blind = (game('Pong', seed=4, render=render, sticky_actions=0.25, time_limit=20)
                   for render in (True, False))
    assert seen.render_mode == 'rgb_array'
    assert seen.metadata['render_fps'] == 15
    pairs = [(seen.reset()[0], blind.reset()[0])]
    for step in range(30):
        actions = np.array([2 + step % 2, step % 6])
        pairs.append((seen.step(actions)[0], blind.step(actions)[0]))
        images = seen.render()
        assert [each.shape for each in images] == [(210, 160, 3)] * 2
        # Brown in colour, so red is more than blue: the channels are not swapped.
        background = images[0][100, 40].astype(int)
        assert background[0] > background[2] + 50
    assert all(np.array_equal(a, b) for a, b in pairs)
    # After a reset without a seed both copies go on together. The observation is the picture in
    # grey, shrunk: their brightness per row goes together.
    seen.reset()
    observation = seen.step(np.array([2, 3]))[0][0, -1].mean(axis=1)
    picture = seen.render()[0].mean(axis=(1, 2))
    rows = np.interp(np.linspace(0, 209, 84), np.arange(210), picture)
    assert np.corrcoef(observation, rows)[0, 1] > 0.9
    seen.close()
    blind.close()

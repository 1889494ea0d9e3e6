"""Evaluation: number of episodes, statistics, and the policy as a function."""

import itertools
import threading
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from counters import episode_length

from vdl_ros.envs.checked_vector_env import Wrapper
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.evaluation import Evaluation, Success, difference, evaluate, shares_of
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.settings import TrainConfig

NUMBERS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gymnasium.spaces.Discrete(4)


def make_act(action_space=ACTIONS, own=None, *, deterministic, **config):
    """Return a policy that plays, and the policy."""
    policy = make_policy(
        TrainConfig(network='mlp', hidden_size=4, **config), NUMBERS, action_space, own)
    return Act(policy, action_space, deterministic=deterministic), policy


def play(episodes, batch, seed=6, stop=None):
    envs = make(EnvConfig(env_id='vdl/Counter-v0'), 1, num_envs=batch)
    identities = envs.reset(seed=seed)[0][:, 2].astype(int)
    return identities, evaluate(
        envs, lambda observations, *_: np.zeros(len(observations), np.int64), episodes, seed, stop)


def test_episodes_are_divided_evenly_among_environments():
    # The rest is spread: 32 environments are eight worlds of four bodies, body by body.
    assert shares_of(20, 32).reshape(4, 8).sum(1).tolist() == [5, 5, 5, 5]
    for seed, (episodes, batch) in enumerate([(1, 1), (7, 3), (12, 4), (2, 5)]):
        identities, result = play(episodes, batch, seed)
        shares = shares_of(episodes, batch)
        assert (shares.sum(), shares.max() - shares.min()) == (episodes, episodes % batch > 0)
        lengths = [episode_length(e, i) for i, n in zip(identities, shares, strict=True)
                   for e in range(n)]
        assert sorted(result.lengths) == sorted(lengths)
        assert sorted(result.returns) == sorted(n * (n + 1) / 2 for n in lengths)


def test_episodes_say_how_they_ended_and_a_stop_event_ends_the_evaluation():
    stop = threading.Event()
    stop.set()
    assert play(5, 2, stop=stop)[1] == Evaluation(())
    _, result = play(12, 1)
    # In the counter environments they take turns.
    assert [(each.terminated, each.truncated) for each in result.episodes] == [
        (True, False), (False, True)] * 6


def test_how_much_actions_change_is_counted_within_episodes():
    envs = make(EnvConfig(env_id='Pendulum-v1', time_limit=3), 1, num_envs=2)
    # 1, 2, -2 in each episode of the first environment, of a range of 4, and one that is ignored.
    moves = itertools.cycle([1.0, 2.0, -2.0, 2.0])
    found = evaluate(envs, lambda *_: np.array([[next(moves)], [0.0]], np.float32), 4, 1)
    assert found.lengths == [3] * 4
    assert found.action_change == pytest.approx((1.0 + 4.0) / 4.0 / 2 / 2)
    assert play(2, 2)[1].action_change == 0.0


def test_mean_standard_deviation_and_confidence_interval():
    result = Evaluation(tuple(
        FinishedEpisode(0, total, 1, True, False) for total in (1.0, 2.0, 3.0, 6.0)))
    assert result.mean == 3.0
    assert result.std == pytest.approx(np.sqrt(3.5))
    # The sample standard deviation, with N - 1.
    assert result.interval == pytest.approx(1.96 * np.sqrt(14 / 3) / 2)
    assert np.isnan(Evaluation(result.episodes[:1]).interval)


def test_the_interval_of_success_is_that_of_wilson():
    # Of Newcombe 1998, doi:10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E.
    for count, episodes, interval in (
            (81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611)),
            (1, 29, (0.0061, 0.1718))):
        assert Success(count, episodes).interval == pytest.approx(interval, abs=5e-5), count


def test_the_same_episode_of_two_policies_is_a_pair():
    def played(*episodes):
        return Evaluation(tuple(FinishedEpisode(environment, total, 1, True, False, success)
                                for environment, total, success in episodes))

    # They end in another order, and the second policy played one more in environment 0.
    found = difference(played((0, 1.0, True), (1, 5.0, False), (0, 2.0, False)),
                       played((1, 6.0, True), (0, 3.0, True), (0, 6.0, True), (0, 9.0, True)))
    assert found.pairs == 3
    # Of 2, 4 and 1; and of 0, 1 and 1.
    assert found.mean == pytest.approx(7 / 3)
    assert found.interval == pytest.approx(1.96 * np.std([2, 4, 1]) / np.sqrt(2))
    assert found.success == pytest.approx((2 / 3, 1.96 * np.std([0, 1, 1]) / np.sqrt(2)))
    assert difference(played(), played((0, 1.0, None))) is None


def test_episodes_that_a_robot_lost_are_counted_apart():
    # A reset takes more than one step.
    steps = iter([(0, 0, 0), (0, 0, 1), (0, 0, 1), (0, 0, 1), (1, 0, 0), (0, 0, 1), (0, 0, 1),
                  (0, 0, 1), (0, 1, 0)])

    def step(actions):
        terminated, truncated, lost = (np.array([each], bool) for each in next(steps))
        return np.zeros((1, 2)), np.ones(1), terminated, truncated, {'is_lost': lost}

    envs = SimpleNamespace(num_envs=1, metadata={}, single_action_space=ACTIONS, step=step,
                           reset=lambda seed: (np.zeros((1, 2)), {}))
    result = evaluate(envs, lambda *_: np.zeros(1, np.int64), 2, 0)
    # The episode that goes on after the lost one has one step; the next begins with a reset.
    assert (result.lost, result.lengths) == (1, [1, 1])
    assert result.figures()['lost'] == 1


def test_a_first_episode_of_which_success_is_not_said_is_none():
    steps = iter([{}, {}, {'is_success': np.ones(1)}])

    class Said(Wrapper):
        def step(self, actions):
            return *self.env.step(actions)[:4], next(steps)

    envs = Said(make(EnvConfig(env_id='Pendulum-v1', time_limit=1), 1, num_envs=1))
    result = evaluate(envs, lambda *_: np.zeros((1, 1), np.float32), 2, 0)
    assert [each.success for each in result.episodes] == [False, True]


def test_act_receives_episode_starts_and_previous_rewards():
    envs = make(EnvConfig(env_id='vdl/Counter-v0'), 1, num_envs=3)
    received = []

    def act(observations, is_reset, rewards):
        # In these environments the second number is the step in the episode, and the reward.
        assert is_reset.tolist() == (observations[:, 1] == 0).tolist()
        assert rewards.tolist() == observations[:, 1].tolist()
        received.append(is_reset)
        return np.zeros(3, np.int64)

    result = evaluate(envs, act, 9, 6)
    assert received[0].all()
    assert np.sum(received) >= len(result.returns) == 9


def test_continuous_actions_are_clipped_to_the_bounds_or_squashed():
    space = gymnasium.spaces.Box(-0.5, 0.25, (2,), np.float32)
    act, _ = make_act(space, deterministic=False)
    drawn = act(np.ones((200, 3), np.float32))
    assert (drawn.min(), drawn.max()) == (-0.5, 0.25)
    space = gymnasium.spaces.Box(-2.0, 4.0, (2,), np.float32)
    act, policy = make_act(space, deterministic=True, action_distribution='squashed')
    with torch.no_grad():
        policy.policy_head.bias[:] = torch.tensor([0.5, -1.0])
    middle = policy(torch.ones(3)).parameters[:2].detach().numpy()
    played = act(np.ones((1, 3), np.float32))[0]
    np.testing.assert_allclose(played, 1.0 + 3.0 * np.tanh(middle), rtol=1e-5)


def test_the_state_begins_anew_with_another_number_of_environments_and_no_reward_is_0():
    act, policy = make_act(deterministic=True, lstm_size=3, last_action_reward=True)
    other, one = Act(policy, ACTIONS, deterministic=True), np.ones((2, 3), np.float32)
    for _ in range(2):
        act(one)
        other(one, None, np.zeros(2))
    assert torch.equal(act.state, other.state)
    act(one[:1])
    fresh = Act(policy, ACTIONS, deterministic=True)
    fresh(one[:1])
    assert torch.equal(act.state, fresh.state)


def test_an_evaluation_whose_episodes_do_not_end_is_not_silent():
    lines, times = [], itertools.count(0.0, 6.0)
    envs = make(EnvConfig(env_id='Pendulum-v1', time_limit=9), 1, num_envs=1)
    evaluate(envs, lambda *_: np.zeros((1, 1), np.float32), 2, 1, tell=lines.append,
             clock=times.__next__)
    assert lines == [
        f'{ended} of 2 episodes have ended in {seconds} s; the longest of the others has '
        f'{steps} steps{hint}' for ended, seconds, steps, hint in (
            (0, 12, 2, ', and time_limit would end it'),
            (0, 24, 4, ', and time_limit would end it'),
            (0, 36, 6, ', and time_limit would end it'),
            (0, 48, 8, ', and time_limit would end it'),
            *((1, 60 + 6 * steps, steps, '') for steps in (0, 2, 4, 6, 8)))]

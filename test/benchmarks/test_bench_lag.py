"""The benchmark of lag: delays of trainings and episodes, resuming, the tables."""

import argparse
import json

import pytest
import torch

from benchmarks.bench_lag import AWARE, NAIVE, TASKS, _measured, figures, play, text, train
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.algorithm_config import make_algorithm_config
from vdl_ros.rl.policy.factory import make_policy
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.saved_policy import SavedPolicy


def saved(**env_settings):
    """Return a policy of CartPole that was not trained."""
    torch.manual_seed(0)
    train = TrainConfig(network='mlp', hidden_size=4)
    env = EnvConfig(env_id='CartPole-v1', num_envs=4, **env_settings)
    spaces = factory.spaces(env)
    policy = make_policy(train, *spaces, make_algorithm_config(train, {}))
    return SavedPolicy(policy.eval(), env, train, spaces[1], 0, 7, {})


def test_the_aware_policy_trains_with_random_delays_and_observes_what_is_under_way():
    delays = [0, 40, 200]
    assert TASKS['pong'].delays(NAIVE, delays) == {}
    assert TASKS['pong'].delays('40', delays) == {'action_delay': '0.04'}
    assert TASKS['cartpole'].delays(AWARE, delays) == {
        'random_action_delay': '0.2', 'observe_last_actions': '11'}
    # The arm observes its commands anyway, Pong's policy has a memory.
    for name in ('reach', 'pong'):
        assert TASKS[name].delays(AWARE, delays) == {'random_action_delay': '0.2'}
    for task in TASKS.values():
        trained = {name: float(value) for name, value in task.delays(AWARE, delays).items()}
        number = int(trained.pop('observe_last_actions', 0))
        env = EnvConfig(env_id=task.env_id, observe_last_actions=number, **trained)
        factory.make(env, 0, num_envs=1).close()


def test_with_init_the_naive_policy_is_given_and_others_go_on_from_it(tmp_path):
    options = argparse.Namespace(init=None, runs=tmp_path, steps=64, delays=[0, 40],
                                 as_they_are=False)
    first = train('cartpole', NAIVE, 1, options)
    options.init = first
    assert train('cartpole', NAIVE, 2, options) == first
    late = train('cartpole', '40', 1, options)
    config = (late.parent / 'config.yaml').read_text()
    assert f'init: {first}' in config
    assert 'action_delay: 0.04' in config


def test_a_policy_is_played_at_the_delay_whatever_it_was_trained_with():
    naive, late = saved(), saved(action_delay=0.5)
    assert play(naive, 0, 8, 3) != play(naive, 100, 8, 3)
    assert play(naive, 100, 8, 3) == play(late, 100, 8, 3)
    aware = saved(random_action_delay=0.2, observe_last_actions=3)
    assert len(play(aware, 200, 8, 3).episodes) == 8


def test_reaction_times_are_those_of_the_delay_in_real_time():
    options = argparse.Namespace(episodes=4, seed=3, seconds=0.5)
    found = figures(saved(), 100, 50.0, options)
    assert found['reaction_time_ms']['p50'] > 100.0
    assert found['reaction_time_ms']['p50'] <= found['reaction_time_ms']['p99']
    assert found['success'] is None


@pytest.mark.parametrize(('seconds', 'kept'), [(20.0, 1), (5.0, 0)])
def test_figures_of_the_same_episodes_are_kept(tmp_path, seconds, kept):
    same = {'task': 'reach', 'episodes': 200, 'seed': 1000, 'seconds': 20.0}
    path = tmp_path / 'lag.json'
    options = argparse.Namespace(**{**same, 'seconds': seconds}, output=path)
    assert list(_measured(options)) == []
    path.write_text(json.dumps({**same, 'figures': [{'trained': NAIVE}]}))
    assert len(list(_measured(options))) == kept


def test_the_tables_have_a_row_for_each_policy_and_each_delay():
    times = {'thinking': 1.2, 'processing': 0.1, 'action_lag': 50.0, 'observation_lag': 0.4,
             'mean': 51.7, 'p50': 51.0, 'p99': 99.6}

    def row(trained, delay, seed, mean, success):
        return {'trained': trained, 'delay_ms': delay, 'training_seed': seed,
                'agent_steps': 1000 + seed, 'mean_return': mean, 'success': success,
                'reaction_time_ms': times}

    found = {'env_id': 'x/Y-v0', 'episodes': 200, 'delays_ms': [0, 40], 'figures': [
        row(NAIVE, 0, 1, 10.0, 0.9), row(NAIVE, 0, 2, 11.0, 1.0),
        row(NAIVE, 40, 1, 2.0, 0.25), row('40', 0, 1, 3.0, 0.5), row('40', 40, 1, 4.0, 0.5)]}
    assert text(found).splitlines() == [
        'x/Y-v0: mean return of 200 episodes · success', '',
        '| trained | steps | 0 ms | 40 ms |', '|---|---|---|---|',
        '| naive | 1,001 | 10.5 · 95% | 2.0 · 25% |',
        '| 40 ms | 1,001 | 3.0 · 50% | 4.0 · 50% |', '',
        'Reaction time in real time, ms', '',
        '| delay, ms | thinking | processing | action lag | observation lag | p50 | p99 |',
        '|---|---|---|---|---|---|---|',
        '| 0 | 1 | 0 | 50 | 0 | 51 | 100 |', '| 40 | 1 | 0 | 50 | 0 | 51 | 100 |']

"""Settings that contradict each other are refused where they are checked, with both values."""

import dataclasses
import re

import pytest

from vdl_ros.common.settings import SettingError, build, select, settings_of
from vdl_ros.rl.algorithm_config import (
    ALGORITHM_SETTINGS,
    DqnConfig,
    ImpalaConfig,
    PpoConfig,
    ReplayConfig,
    SacConfig,
    make_algorithm_config,
    verify,
)
from vdl_ros.rl.train_config import ALGORITHMS, TrainConfig

DQN = TrainConfig(algorithm='dqn', unroll_length=20, total_steps=10_000)
# As large as they may be, each against the next.
AT_THE_EDGE = DqnConfig(
    n_step=20, replay_size=500, replay_start=500, replay_batch=500, exploration_start=1.0,
    exploration_end=1.0)


def refused(train, algorithm_config, message):
    """Assert that settings are refused in one line that begins with ``message``."""
    with pytest.raises(SettingError, match=rf'^{re.escape(message)}[^\n]*$'):
        verify(train, algorithm_config)


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_defaults_are_allowed(algorithm):
    algorithm_config = ALGORITHM_SETTINGS[algorithm]
    for cls in (TrainConfig, algorithm_config):
        build(cls, {each.name: each.default for each in settings_of(cls).values()})
    verify(TrainConfig(algorithm=algorithm), algorithm_config())


@pytest.mark.parametrize(('batch', 'every', 'lag'), [(5, 1, 4), (1, 5, 4), (2, 3, 5)])
@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_a_credit_smaller_than_what_an_answer_needs_is_refused(algorithm, batch, every, lag):
    algorithm_config = ALGORITHM_SETTINGS[algorithm]()
    bad = TrainConfig(algorithm=algorithm, batch_size=batch, publish_every=every,
                      max_policy_lag=lag)
    with pytest.raises(SettingError, match=(
            rf'^max_policy_lag: {lag} .* = {batch} \* {every} = {batch * every}')):
        verify(bad, algorithm_config)
    verify(dataclasses.replace(bad, max_policy_lag=batch * every), algorithm_config)


def test_synchronous_actors_have_the_credit_of_a_batch_whatever_the_lag():
    train = TrainConfig(synchronous=True, batch_size=5, max_policy_lag=4)
    verify(train, ImpalaConfig())
    assert train.credit == 5
    assert dataclasses.replace(train, synchronous=False).credit == 4


def test_synchronous_actors_need_every_policy():
    train = TrainConfig(synchronous=True, publish_every=2, max_policy_lag=1000)
    refused(train, ImpalaConfig(), 'publish_every: 2 is not allowed with synchronous true: 1')
    verify(dataclasses.replace(train, synchronous=False), ImpalaConfig())
    verify(dataclasses.replace(train, publish_every=1), ImpalaConfig())


def test_a_minibatch_has_a_step():
    train = TrainConfig(algorithm='ppo', batch_size=2, unroll_length=5)
    refused(train, PpoConfig(ppo_minibatches=11),
            'ppo_minibatches: 11 is not allowed: at most batch_size * unroll_length = 2 * 5 = 10')
    verify(train, PpoConfig(ppo_minibatches=10))


@pytest.mark.parametrize('form', ['clip', 'kl', 'hinge'])
def test_a_divergence_cannot_be_aimed_at_in_one_step(form):
    train = TrainConfig(algorithm='ppo')
    algorithm_config = PpoConfig(ppo_form=form, ppo_epochs=1, ppo_minibatches=1)
    if form != 'clip':
        refused(train, algorithm_config,
                f"ppo_epochs: 1 is not allowed with ppo_form '{form}' and ppo_minibatches 1: "
                'one step')
    else:
        verify(train, algorithm_config)
    verify(train, dataclasses.replace(algorithm_config, ppo_epochs=2))
    verify(train, dataclasses.replace(algorithm_config, ppo_minibatches=2))


def test_what_dqn_keeps_and_draws_may_be_as_large_as_what_holds_it():
    verify(DQN, AT_THE_EDGE)
    verify(dataclasses.replace(DQN, total_steps=500), AT_THE_EDGE)
    verify(dataclasses.replace(DQN, unroll_length=500),
           dataclasses.replace(AT_THE_EDGE, n_step=500))


def test_the_replay_of_sac_is_checked_as_that_of_dqn():
    train = dataclasses.replace(DQN, algorithm='sac')
    refused(train, SacConfig(n_step=21), 'n_step: 21 is not allowed: at most unroll_length, 20')
    refused(train, SacConfig(replay_start=10_001),
            'replay_start: 10001 is not allowed: at most total_steps, 10000')


@pytest.mark.parametrize(('train', 'algorithm_config', 'message'), [
    ({}, {'n_step': 21}, 'n_step: 21 is not allowed: at most unroll_length, 20'),
    ({'unroll_length': 501}, {}, 'unroll_length: 501 is not allowed: at most replay_size, 500'),
    ({}, {'replay_batch': 501}, 'replay_batch: 501 is not allowed: at most replay_size, 500'),
    ({}, {'replay_start': 501}, 'replay_start: 501 is not allowed: at most replay_size, 500'),
    ({'total_steps': 499}, {}, 'replay_start: 500 is not allowed: at most total_steps, 499'),
    ({}, {'exploration_start': 1.5},
     "exploration_start: 1.5 is not allowed with exploration 'epsilon': at most 1"),
    ({}, {'exploration_end': 2.0},
     "exploration_end: 2 is not allowed with exploration 'epsilon': at most 1")])
def test_what_does_not_fit_dqn_is_refused_with_both_values(train, algorithm_config, message):
    refused(dataclasses.replace(DQN, **train),
            dataclasses.replace(AT_THE_EDGE, **algorithm_config), message)


def test_each_learner_collects_before_it_learns():
    train = dataclasses.replace(DQN, total_steps=1001)
    verify(train, AT_THE_EDGE, num_learners=2)
    with pytest.raises(SettingError, match=re.escape(
            'replay_start: 500 is not allowed: at most total_steps / num_learners = 1001 / 3 = '
            '333, or nothing would be learned')):
        verify(train, AT_THE_EDGE, num_learners=3)


def test_a_temperature_may_be_larger_than_1():
    verify(DQN, dataclasses.replace(
        AT_THE_EDGE, exploration='boltzmann', exploration_start=5.0, exploration_end=2.0))


def test_what_dqn_is_refused_for_does_not_concern_others():
    verify(TrainConfig(unroll_length=10_000, total_steps=1), ImpalaConfig())


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_an_algorithm_takes_its_own_settings_of_all(algorithm):
    train = TrainConfig(algorithm=algorithm)
    everything = {name: each.default for cls in (TrainConfig, *ALGORITHM_SETTINGS.values())
                  for name, each in settings_of(cls).items()}
    assert make_algorithm_config(train, everything) == ALGORITHM_SETTINGS[algorithm]()
    assert select(TrainConfig, everything) == TrainConfig()


def test_own_settings_are_checked():
    with pytest.raises(SettingError, match='^ppo_epochs: 0 is not allowed: a whole number from 1'):
        make_algorithm_config(TrainConfig(algorithm='ppo'), {'ppo_epochs': 0})


def test_only_settings_of_the_replay_are_of_two_algorithms():
    names = [name for cls in (TrainConfig, *ALGORITHM_SETTINGS.values())
             for name in settings_of(cls)]
    assert {name for name in names if names.count(name) > 1} == settings_of(ReplayConfig).keys()


@pytest.mark.parametrize(('memory', 'message'), [
    ({'lstm_size': 8}, "lstm_size: 8 is not allowed with algorithm 'sac': 0"),
    ({'last_action_reward': True},
     "last_action_reward: True is not allowed with algorithm 'sac': false")])
def test_sac_has_no_memory(memory, message):
    refused(TrainConfig(algorithm='sac', **memory), SacConfig(), message)

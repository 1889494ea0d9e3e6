"""The learner: deterministic, resumable to the bit, and unharmed by what is not finite."""

import copy
import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.algorithm_config import (
    ALGORITHM_SETTINGS,
    ImpalaConfig,
    PpoConfig,
    make_algorithm_config,
)
from vdl_ros.rl.data.unroll import Unroll, UnrollError
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy.factory import make_policy
from vdl_ros.rl.policy.weights import load_weights
from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint
from vdl_ros.rl.train_config import TrainConfig

CONFIG = TrainConfig(unroll_length=8, hidden_size=8, total_steps=1000)
# So that every algorithm makes a step from each of the unrolls of the tests.
SMALL = {'replay_start': 1, 'replay_batch': 8, 'replay_size': 200, 'reinforce_episodes': 1,
         'ppo_epochs': 2, 'ppo_minibatches': 2, 'target_period': 2}
ALGORITHMS = list(ALGORITHM_SETTINGS)
# With the sizes of an LSTM; sac has none.
MEMORIES = [(name, size) for name in ALGORITHMS for size in (0, 4) if (name, size) != ('sac', 4)]


def make(spaces, algorithm='impala', **changed):
    """Return a learner of that algorithm."""
    config = dataclasses.replace(CONFIG, algorithm=algorithm, **changed)
    return Learner(config, *spaces, algorithm_config=make_algorithm_config(config, SMALL))


def replaced(unroll, **arrays):
    return dataclasses.replace(unroll, arrays={**unroll.arrays, **arrays})


@pytest.mark.parametrize('optimizer', ['adam', 'rmsprop'])
@pytest.mark.parametrize(('algorithm', 'lstm_size'), MEMORIES)
def test_the_same_seed_and_unrolls_give_the_same_learner(
        spaces, random_unroll, same, algorithm, optimizer, lstm_size):
    settings = {'algorithm': algorithm, 'optimizer': optimizer, 'lstm_size': lstm_size}

    def learned():
        learner = make(spaces, **settings)
        first = copy.deepcopy(learner.weights())
        metrics = [learner.update([random_unroll(
            seed, sequence=seed, state_size=2 * lstm_size)]) for seed in range(3)]
        return first, metrics, learner.weights()

    first, metrics, weights = learned()
    # What is drawn while learning comes from the seed as well.
    assert same(learned(), (first, metrics, weights))
    assert any('losses/loss' in each for each in metrics)
    assert not same(weights, first)
    assert not same(make(spaces, seed=2, **settings).weights(), first)


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_learner_makes_the_configured_algorithm(spaces, algorithm):
    learner = make(spaces, algorithm)
    assert type(learner.algorithm).__module__ == f'vdl_ros.rl.algorithms.{algorithm}'
    assert type(learner.algorithm_config) is ALGORITHM_SETTINGS[algorithm]
    assert learner.algorithm.algorithm_config is learner.algorithm_config
    assert learner.algorithm.policy is learner.policy


def test_algorithm_gets_its_settings_or_its_defaults(spaces):
    assert Learner(CONFIG, *spaces).algorithm_config == ImpalaConfig()
    config = dataclasses.replace(CONFIG, algorithm='ppo')
    algorithm_config = PpoConfig(ppo_clip=0.3)
    learner = Learner(config, *spaces, algorithm_config=algorithm_config)
    assert learner.algorithm.algorithm_config is algorithm_config


def test_unroll_schema_includes_the_recurrent_state(spaces):
    assert make(spaces).schema.state_size == 0
    learner = make(spaces, lstm_size=5)
    assert learner.schema.state_size == learner.policy.state_size == 10
    assert learner.schema.empty(3)['state'].shape == (3, 10)


def test_versions_and_valid_steps_are_counted(spaces, random_unroll):
    learner = Learner(CONFIG, *spaces)
    unrolls = [random_unroll(0), random_unroll(1, batch=2)]
    metrics = learner.update(unrolls)
    resets = sum(int(unroll.arrays['is_reset'][1:].sum()) for unroll in unrolls)
    assert resets > 0
    assert (learner.version, learner.agent_steps) == (1, 8 * 5 - resets)
    assert all(type(value) is float and np.isfinite(value) for value in metrics.values())
    assert {'losses/loss', 'losses/grad_norm', 'charts/learning_rate'} <= metrics.keys()


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_metrics_of_every_algorithm_are_finite_floats(spaces, random_unroll, algorithm):
    learner = make(spaces, algorithm)
    metrics = {}
    for seed in range(3):
        metrics |= learner.update([random_unroll(seed, sequence=seed)])
    assert all(type(value) is float and np.isfinite(value) for value in metrics.values())
    assert {'losses/loss', 'losses/grad_norm', 'charts/learning_rate'} <= metrics.keys()
    assert learner.version == 3


def test_agent_steps_are_summed_over_all_learners(spaces, random_unroll):
    class Ten(Group):
        """One of ten learners whose parts are all alike."""

        size = 10

        def all_reduce_sum(self, numbers):
            return numbers.detach() * 10

    alone, together = Learner(CONFIG, *spaces), Learner(CONFIG, *spaces, group=Ten())
    for learner in (alone, together):
        learner.update([random_unroll(0)])
    assert together.agent_steps == 10 * alone.agent_steps > 0
    assert together.algorithm.group is together.algorithm.optimizer.group is together.group


# What dqn and sac have in their replay is not kept: they go on, but not to the bit.
@pytest.mark.parametrize(('algorithm', 'optimizer', 'lstm_size'), [
    ('impala', 'adam', 0), ('impala', 'rmsprop', 0), ('impala', 'adam', 4), ('a3c', 'rmsprop', 0),
    ('ppo', 'adam', 0), ('ppo', 'adam', 4)])
def test_resumed_learner_continues_bit_identically(
        spaces, random_unroll, same, tmp_path, algorithm, optimizer, lstm_size):
    settings = {'algorithm': algorithm, 'optimizer': optimizer, 'lstm_size': lstm_size,
                'learning_rate_schedule': 'linear', 'normalize_observations': True}

    def learn(learner, seeds):
        return [learner.update([random_unroll(seed, state_size=2 * lstm_size)])
                for seed in seeds]

    one = make(spaces, **settings)
    learn(one, range(3))
    save_checkpoint(tmp_path / 'c.pt', config={}, learner=one.state(), progress={})
    state = torch.get_rng_state()
    drawn = torch.rand(3)
    torch.set_rng_state(state)
    expected = learn(one, (3, 4))
    torch.manual_seed(99)
    other = make(spaces, seed=5, **settings)
    other.load_state(load_checkpoint(tmp_path / 'c.pt')['learner'])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.rand(3), drawn)
    torch.set_rng_state(state)
    assert learn(other, (3, 4)) == expected
    assert same(one.state()['policy'], other.state()['policy'])
    assert same(one.state()['algorithm'], other.state()['algorithm'])
    assert (one.version, one.agent_steps) == (other.version, other.agent_steps)


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_every_algorithm_restores_its_state(
        spaces, random_unroll, same, tmp_path, algorithm):
    one = make(spaces, algorithm)
    for seed in range(3):
        one.update([random_unroll(seed, sequence=seed)])
    save_checkpoint(tmp_path / 'c.pt', config={}, learner=one.state(), progress={})
    other = make(spaces, algorithm, seed=5)
    other.load_state(load_checkpoint(tmp_path / 'c.pt')['learner'])
    assert same(one.state(), other.state())
    before = copy.deepcopy(other.weights())
    for seed in range(2):
        other.update([random_unroll(seed, sequence=seed)])
    assert not same(other.weights(), before)


@pytest.mark.parametrize(('change', 'reason'), [
    ({'hidden_size': 9}, 'size mismatch'), ({'optimizer': 'rmsprop'}, 'adam is not rmsprop')])
def test_the_state_of_another_learner_is_refused_in_one_line(spaces, change, reason):
    state = Learner(CONFIG, *spaces).state()
    other = Learner(dataclasses.replace(CONFIG, **change), *spaces)
    with pytest.raises(ValueError, match=rf'^checkpoint: not of this network: [^\n]*{reason}'):
        other.load_state(state)


@pytest.mark.parametrize(('one', 'another'), [
    ('impala', 'ppo'), ('impala', 'dqn'), ('dqn', 'a3c'), ('ppo', 'dqn'),
    ('sac', 'dqn'), ('a3c', 'sac')])
def test_the_state_of_another_algorithm_is_refused_in_one_line(spaces, one, another):
    with pytest.raises(ValueError, match=r'^checkpoint: not of this network: [^\n]*$'):
        make(spaces, another).load_state(make(spaces, one).state())


@pytest.mark.parametrize('key', ['policy', 'algorithm', 'version', 'agent_steps', 'torch_rng'])
def test_an_incomplete_state_is_refused(spaces, key):
    learner = Learner(CONFIG, *spaces)
    state = {name: value for name, value in learner.state().items() if name != key}
    with pytest.raises(ValueError, match=f"^checkpoint: .*'{key}'"):
        learner.load_state(state)


@pytest.mark.parametrize(('algorithm', 'key'), [
    *((name, 'optimizer') for name in ALGORITHMS), ('ppo', 'beta'), ('dqn', 'target'),
    ('dqn', 'steps'), ('sac', 'target'), ('sac', 'critics'), ('sac', 'log_temperature')])
def test_an_incomplete_state_of_the_algorithm_is_refused(spaces, algorithm, key):
    learner = make(spaces, algorithm)
    state = learner.state()
    del state['algorithm'][key]
    with pytest.raises(ValueError, match=f"^checkpoint: .*'{key}'"):
        learner.load_state(state)


def test_a_loss_that_is_not_finite_changes_nothing(spaces, random_unroll, same):
    learner = Learner(CONFIG, *spaces)
    learner.update([random_unroll(0)])
    before = copy.deepcopy(learner.state())
    poison = replaced(random_unroll(1), rewards=np.full((8, 3), 1e30, np.float32))
    with pytest.raises(FloatingPointError, match=r'^update 1: .*losses/value_loss.* not finite$'):
        learner.update([poison])
    assert same(learner.state(), before)
    learner.update([random_unroll(2)])


@pytest.mark.parametrize(('array', 'value'), [
    ('rewards', 1e9), ('rewards', -1e9), ('observations', 1e9), ('behaviour_log_probs', -1e6),
    ('behaviour_log_probs', 1e6)])
@pytest.mark.parametrize(('algorithm', 'lstm_size'), MEMORIES)
def test_the_largest_numbers_that_are_allowed_do_not_end_a_run(
        spaces, random_unroll, algorithm, array, value, lstm_size):
    learner = make(spaces, algorithm, lstm_size=lstm_size)
    unroll = random_unroll(1, state_size=2 * lstm_size)
    extreme = replaced(unroll, **{array: np.full_like(unroll.arrays[array], value)})
    learner.schema.check(extreme.arrays)
    # The second learns from the weights that the first has left.
    for sequence in range(2):
        learner.update([dataclasses.replace(extreme, sequence=sequence)])


def test_a_gradient_that_is_not_finite_changes_nothing(spaces, random_unroll, same):
    learner = Learner(CONFIG, *spaces)
    before = copy.deepcopy(learner.state())
    learner.policy.value_head.weight.register_hook(lambda gradient: gradient * float('nan'))
    with pytest.raises(FloatingPointError, match=(
            r'^update 0: the gradient of value_head\.weight is not finite$')):
        learner.update([random_unroll(1)])
    assert same(learner.state(), before)


def test_frames_that_do_not_fit_change_nothing(same):
    config = EnvConfig(env_id='vdl/PixelCounter-v0')
    envs = factory.make(config, 1, num_envs=2)
    spaces = envs.single_observation_space, envs.single_action_space
    learner = Learner(CONFIG, *spaces, factory.frames_per_observation(config))
    arrays, _ = TorchActor(envs, make_policy(CONFIG, *spaces), learner.schema, 1).unroll()
    arrays['reset_index'] = np.array([[50, 0]], np.int32)
    arrays['reset_stacks'] = np.zeros((1, 4, 8, 8), np.uint8)
    before = copy.deepcopy(learner.state())
    with pytest.raises(UnrollError, match='^reset_index: '):
        learner.update([Unroll(arrays, 'a', 0, 0, 0)])
    assert same(learner.state(), before)


def test_gradient_is_clipped_to_max_grad_norm(spaces, random_unroll):
    config = dataclasses.replace(CONFIG, max_grad_norm=1e-3)
    learner = Learner(config, *spaces)
    metrics = learner.update([random_unroll(0)])
    norm = torch.cat([each.grad.flatten() for each in learner.policy.parameters()]).norm()
    assert metrics['losses/grad_norm'] > 1e-2
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


def test_linear_schedule_decays_to_zero(spaces, random_unroll):
    learner = Learner(dataclasses.replace(CONFIG, learning_rate_schedule='linear'), *spaces)
    metrics = learner.update([random_unroll(0)])
    assert metrics['charts/learning_rate'] == CONFIG.learning_rate
    for steps, left in ((250, 0.75), (1001, 0.0)):
        learner.agent_steps = steps
        metrics = learner.update([random_unroll(0)])
        assert metrics['charts/learning_rate'] == pytest.approx(left * CONFIG.learning_rate)
        used = learner.state()['algorithm']['optimizer']['param_groups'][0]['lr']
        assert used == metrics['charts/learning_rate']


def test_constant_schedule_keeps_the_learning_rate(spaces, random_unroll):
    learner = Learner(CONFIG, *spaces)
    learner.agent_steps = 999
    metrics = learner.update([random_unroll(0)])
    assert metrics['charts/learning_rate'] == CONFIG.learning_rate


def test_weights_go_to_an_actors_network(spaces, same):
    learner = Learner(CONFIG, *spaces)
    policy = make_policy(CONFIG, *spaces)
    load_weights(policy, learner.weights())
    assert same(dict(policy.state_dict()), dict(learner.policy.state_dict()))


def test_statistics_go_to_an_actors_network_with_the_weights(spaces, random_unroll, same):
    config = dataclasses.replace(CONFIG, normalize_observations=True)
    learner = Learner(config, *spaces)
    learner.update([random_unroll(0)])
    policy = make_policy(config, *spaces)
    load_weights(policy, learner.weights())
    assert float(policy.normalizer.count) == learner.agent_steps > 0
    assert same(dict(policy.state_dict()), dict(learner.policy.state_dict()))


def test_a_copy_of_the_policy_does_not_learn(spaces, random_unroll, same):
    learner = Learner(CONFIG, *spaces)
    policy = learner.copy_policy()
    before = copy.deepcopy(dict(policy.state_dict()))
    assert same(before, dict(learner.policy.state_dict()))
    learner.update([random_unroll(0)])
    assert same(dict(policy.state_dict()), before)
    assert not same(dict(learner.policy.state_dict()), before)


class Bandit(gymnasium.vector.VectorEnv):
    """Eight one-step episodes side by side; action 1 of two is worth 1, the other nothing."""

    num_envs = 8
    single_observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.resets = False
        return np.ones((8, 1), np.float32), {}

    def step(self, actions):
        rewards = (actions == 1).astype(np.float32) * (not self.resets)
        self.resets = not self.resets
        return (np.ones((8, 1), np.float32), rewards, np.full(8, self.resets),
                np.zeros(8, np.bool_), {})


def test_a_bandit_is_learned():
    envs = Bandit()
    spaces = envs.single_observation_space, envs.single_action_space
    learner = Learner(dataclasses.replace(CONFIG, learning_rate=0.02, seed=3), *spaces)
    actor = TorchActor(envs, learner.policy, learner.schema, 3)
    for _ in range(150):
        learner.update([Unroll(actor.unroll()[0], 'a', 0, 0, 0)])
    parameters, values, _ = learner.policy(torch.ones(1))
    assert float(parameters.softmax(-1)[1].detach()) > 0.95
    assert float(values.detach()) == pytest.approx(1.0, abs=0.2)

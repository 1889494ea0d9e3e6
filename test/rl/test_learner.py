"""The learner: deterministic, resumable to the bit, and unharmed by what is not finite."""

import copy
import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.envs import factory
from vdl_ros.envs.config import EnvConfig
from vdl_ros.rl.actor import Actor, load_weights
from vdl_ros.rl.checkpoint import load_checkpoint, save_checkpoint
from vdl_ros.rl.config import TrainConfig
from vdl_ros.rl.learner import Learner, make_batch
from vdl_ros.rl.networks import make_policy
from vdl_ros.rl.unroll import Unroll, UnrollError

CONFIG = TrainConfig(unroll_length=8, hidden_size=8, total_steps=1000)


def replaced(unroll, **arrays):
    return dataclasses.replace(unroll, arrays={**unroll.arrays, **arrays})


def test_unrolls_lie_side_by_side(spaces, random_unroll):
    unrolls = [random_unroll(0, batch=2), random_unroll(1, batch=1), random_unroll(2, batch=3)]
    batch = make_batch(unrolls, Learner(CONFIG, *spaces).schema)
    for name in ('observations', 'actions', 'rewards', 'terminated', 'behaviour_log_probs'):
        expected = np.concatenate([unroll.arrays[name] for unroll in unrolls], 1)
        assert np.array_equal(getattr(batch, name).numpy(), expected)
    resets = np.concatenate([unroll.arrays['is_reset'] for unroll in unrolls], 1)
    assert np.array_equal(batch.valid.numpy(), ~resets[1:])


@pytest.mark.parametrize('optimizer', ['adam', 'rmsprop'])
def test_the_same_seed_and_unrolls_give_the_same_learner(
        spaces, random_unroll, same, optimizer):
    config = dataclasses.replace(CONFIG, optimizer=optimizer)
    learners = [Learner(config, *spaces) for _ in range(2)]
    first = copy.deepcopy(learners[0].weights())
    for seed in range(3):
        a, b = (learner.update([random_unroll(seed)]) for learner in learners)
        assert a == b
    assert same(learners[0].weights(), learners[1].weights())
    assert not same(learners[0].weights(), first)
    assert not same(Learner(dataclasses.replace(config, seed=2), *spaces).weights(), first)


def test_versions_and_valid_steps_are_counted(spaces, random_unroll):
    learner = Learner(CONFIG, *spaces)
    unrolls = [random_unroll(0), random_unroll(1, batch=2)]
    metrics = learner.update(unrolls)
    resets = sum(int(unroll.arrays['is_reset'][1:].sum()) for unroll in unrolls)
    assert resets > 0
    assert (learner.version, learner.agent_steps) == (1, 8 * 5 - resets)
    assert all(type(value) is float and np.isfinite(value) for value in metrics.values())
    assert {'losses/total', 'losses/grad_norm', 'charts/learning_rate'} <= metrics.keys()


@pytest.mark.parametrize('optimizer', ['adam', 'rmsprop'])
def test_a_resumed_learner_goes_on_to_the_bit(spaces, random_unroll, same, tmp_path, optimizer):
    config = dataclasses.replace(CONFIG, optimizer=optimizer, learning_rate_schedule='linear')
    one = Learner(config, *spaces)
    for seed in range(3):
        one.update([random_unroll(seed)])
    save_checkpoint(tmp_path / 'c.pt', config={}, learner=one.state(), progress={})
    drawn = torch.rand(3)
    expected = [one.update([random_unroll(seed)]) for seed in (3, 4)]
    torch.manual_seed(99)
    other = Learner(dataclasses.replace(config, seed=5), *spaces)
    other.load_state(load_checkpoint(tmp_path / 'c.pt')['learner'])
    assert torch.equal(torch.rand(3), drawn)
    assert [other.update([random_unroll(seed)]) for seed in (3, 4)] == expected
    assert same(one.state()['policy'], other.state()['policy'])
    assert same(one.state()['optimizer'], other.state()['optimizer'])
    assert (one.version, one.agent_steps) == (other.version, other.agent_steps)


@pytest.mark.parametrize(('change', 'reason'), [
    ({'hidden_size': 9}, 'size mismatch'), ({'optimizer': 'rmsprop'}, 'adam is not rmsprop')])
def test_the_state_of_another_learner_is_refused_in_one_line(spaces, change, reason):
    state = Learner(CONFIG, *spaces).state()
    other = Learner(dataclasses.replace(CONFIG, **change), *spaces)
    with pytest.raises(ValueError, match=rf'^checkpoint: not of this network: [^\n]*{reason}'):
        other.load_state(state)


@pytest.mark.parametrize('key', ['policy', 'optimizer', 'version', 'agent_steps', 'torch_rng'])
def test_an_incomplete_state_is_refused(spaces, key):
    learner = Learner(CONFIG, *spaces)
    state = {name: value for name, value in learner.state().items() if name != key}
    with pytest.raises(ValueError, match=f"^checkpoint: .*'{key}'"):
        learner.load_state(state)


def test_a_loss_that_is_not_finite_changes_nothing(spaces, random_unroll, same):
    learner = Learner(CONFIG, *spaces)
    learner.update([random_unroll(0)])
    before = copy.deepcopy(learner.state())
    poison = replaced(random_unroll(1), rewards=np.full((8, 3), 1e30, np.float32))
    with pytest.raises(FloatingPointError, match=r'^update 1: .*losses/value.* not finite$'):
        learner.update([poison])
    assert same(learner.state(), before)
    learner.update([random_unroll(2)])


def test_a_gradient_that_is_not_finite_changes_nothing(spaces, random_unroll, same):
    learner = Learner(CONFIG, *spaces)
    before = copy.deepcopy(learner.state())
    learner.policy.value_head.weight.register_hook(lambda gradient: gradient * float('nan'))
    with pytest.raises(FloatingPointError, match='gradient'):
        learner.update([random_unroll(1)])
    assert same(learner.state(), before)


def test_frames_that_do_not_fit_change_nothing(same):
    config = EnvConfig(env_id='vdl/PixelCounter-v0')
    envs = factory.make(config, 1, num_envs=2)
    spaces = envs.single_observation_space, envs.single_action_space
    learner = Learner(CONFIG, *spaces, factory.frames_per_observation(config))
    arrays, _ = Actor(envs, make_policy('auto', *spaces, 8), learner.schema, 1).unroll()
    arrays['reset_index'] = np.array([[50, 0]], np.int32)
    arrays['reset_stacks'] = np.zeros((1, 4, 8, 8), np.uint8)
    before = copy.deepcopy(learner.state())
    with pytest.raises(UnrollError, match='^reset_index: '):
        learner.update([Unroll(arrays, 'a', 0, 0, 0)])
    assert same(learner.state(), before)


def test_the_gradient_is_scaled_down_to_its_largest_norm(spaces, random_unroll):
    config = dataclasses.replace(CONFIG, max_grad_norm=1e-3)
    learner = Learner(config, *spaces)
    metrics = learner.update([random_unroll(0)])
    norm = torch.cat([each.grad.flatten() for each in learner.policy.parameters()]).norm()
    assert metrics['losses/grad_norm'] > 1e-2
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


def test_a_linear_schedule_falls_to_nothing(spaces, random_unroll):
    learner = Learner(dataclasses.replace(CONFIG, learning_rate_schedule='linear'), *spaces)
    assert learner.learning_rate == CONFIG.learning_rate
    metrics = learner.update([random_unroll(0)])
    assert metrics['charts/learning_rate'] <= CONFIG.learning_rate
    learner.agent_steps = 250
    assert learner.learning_rate == pytest.approx(0.75 * CONFIG.learning_rate)
    learner.update([random_unroll(0)])
    used = learner.state()['optimizer']['param_groups'][0]['lr']
    assert used == pytest.approx(0.75 * CONFIG.learning_rate)
    learner.agent_steps = 1001
    assert learner.learning_rate == 0.0


def test_a_constant_schedule_stays(spaces):
    learner = Learner(CONFIG, *spaces)
    learner.agent_steps = 999
    assert learner.learning_rate == CONFIG.learning_rate


def test_weights_go_to_an_actors_network(spaces, same):
    learner = Learner(CONFIG, *spaces)
    policy = make_policy('mlp', *spaces, 8)
    load_weights(policy, learner.weights())
    assert same(dict(policy.state_dict()), dict(learner.policy.state_dict()))


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
    actor = Actor(envs, learner.policy, learner.schema, 3)
    for _ in range(150):
        learner.update([Unroll(actor.unroll()[0], 'a', 0, 0, 0)])
    parameters, values = learner.policy(torch.ones(1))
    assert float(parameters.softmax(-1)[1].detach()) > 0.95
    assert float(values.detach()) == pytest.approx(1.0, abs=0.2)

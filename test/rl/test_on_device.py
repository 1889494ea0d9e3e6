"""Learning on a device: the same updates as on the CPU, nothing mixed, and few waits for it."""

import collections
import copy
import dataclasses

import fake_device
import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.rl.algorithm_config import ALGORITHM_SETTINGS, make_algorithm_config
from vdl_ros.rl.data.unroll import UnrollError
from vdl_ros.rl.device import CPU
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy.distributions import DiagonalGaussian, MultiCategorical
from vdl_ros.rl.runs.checkpoint import pack, unpack
from vdl_ros.rl.train_config import TrainConfig

DEVICE = fake_device.DEVICE

CONFIG = TrainConfig(unroll_length=8, hidden_size=8, precision='float32',
                     normalize_advantages=True)
# So that every algorithm makes a few steps from each batch.
SMALL = {'replay_start': 1, 'replay_batch': 16, 'replay_size': 200, 'replay_ratio': 1.0,
         'target_period': 2, 'reinforce_episodes': 1, 'ppo_epochs': 2, 'ppo_minibatches': 2}
IMAGES = gymnasium.spaces.Box(0, 255, (2, 36, 36), np.uint8)
NUMBERS = gymnasium.spaces.Box(-10, 10, (3,), np.float32)
ACTIONS = gymnasium.spaces.Discrete(4)
FORCES = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
MIXED = ImageAndVector(IMAGES, 3)
MOTORS = gymnasium.spaces.MultiDiscrete([3, 2])


@pytest.fixture
def unrolls(random_unroll):
    """Return a function that draws those of one update, of two actors; one has more columns."""
    def draw(update, learner):
        space, schema, found = learner.schema.observation_space, learner.schema, []
        for number in range(2):
            seed = 2 * update + number
            unroll = random_unroll(seed, batch=1 + number, sequence=update, start_id=number,
                                   state_size=schema.state_size)
            rng, arrays = np.random.default_rng(seed), dict(unroll.arrays)
            if space is not NUMBERS:
                observations = images(rng, arrays['is_reset'])
                numbers = arrays.pop('observations')
                if space is MIXED:
                    rows = np.empty((*observations.shape[:2], *MIXED.shape), np.uint8)
                    parts = MIXED.split(rows)
                    parts[0][...], parts[1][...] = observations, numbers
                    observations = rows
                arrays |= schema.encode(observations, arrays['is_reset'])
            if isinstance(learner.policy.distribution, MultiCategorical):
                arrays['actions'] = rng.integers(0, [3, 2], (8, 1 + number, 2))
            if isinstance(learner.policy.distribution, DiagonalGaussian):
                arrays['actions'] = rng.normal(size=(8, 1 + number, 2)).astype(np.float32)
            schema.check(arrays)
            found.append(dataclasses.replace(unroll, arrays=arrays))
        return found
    return draw


def images(rng, is_reset):
    """Return stacks of two pictures, of which each continues the one before unless it is reset."""
    frames = rng.integers(0, 256, (*is_reset.shape, *IMAGES.shape), np.uint8)
    for t in range(1, len(frames)):
        frames[t, ~is_reset[t], 0] = frames[t - 1, ~is_reset[t], 1]
    return frames


def make(algorithm, device=CPU, space=NUMBERS, actions=ACTIONS, frames=1, options=None, **changes):
    config = dataclasses.replace(CONFIG, algorithm=algorithm, **changes)
    return Learner(config, space, actions, frames, device=device,
                   algorithm_config=make_algorithm_config(config, SMALL | (options or {})))


def assert_same(one, other):
    """Assert that figures or weights are the same but for rounding."""
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(
            one[name], other[name], rtol=1e-5, atol=1e-6, err_msg=name)


def learn_both(fake, unrolls, *args, updates=2, **kwargs):
    """Learn on both, compare, and return the learner on the device and its waits an update."""
    on_cpu, on_device = make(*args, **kwargs), make(*args, device=DEVICE, **kwargs)
    assert {each.device for each in on_device.policy.state_dict().values()} == {DEVICE}
    first = copy.deepcopy(on_cpu.weights())
    waits = []
    for update in range(updates):
        batch = unrolls(update, on_cpu)
        torch.manual_seed(update)
        expected = on_cpu.update(batch)
        torch.manual_seed(update)
        fake.waits.clear()
        assert_same(on_device.update(batch), expected)
        waits.append(collections.Counter(fake.waits))
    assert on_device.agent_steps == on_cpu.agent_steps
    assert_same(on_device.weights(), on_cpu.weights())
    assert any(np.abs(first[name] - each).max() > 1e-4
               for name, each in on_cpu.weights().items())
    return on_device, waits


def looks(learner, waits):
    """Return how often results were looked at for each step, and all other waits."""
    count = sum(each.pop('a copy to the host', 0) for each in waits)
    return count / learner.algorithm.optimizer.steps, waits


@pytest.mark.parametrize('memory', [
    {}, {'lstm_size': 4}, {'lstm_size': 4, 'last_action_reward': True}], ids=str)
@pytest.mark.parametrize('space', [NUMBERS, IMAGES], ids=['numbers', 'images'])
@pytest.mark.parametrize('algorithm', [name for name in ALGORITHM_SETTINGS if name != 'sac'])
def test_an_update_on_a_device_is_that_on_the_cpu(fake, unrolls, algorithm, space, memory):
    learner, waits = learn_both(fake, unrolls, algorithm, space=space, **memory)
    # One for each step, of loss and gradient together, and one for the number of valid steps,
    # which those that learn from host memory know already.
    rest = {} if algorithm in ('reinforce', 'dqn') else {'item': 1}
    assert looks(learner, waits) == (1, [rest] * 2)


@pytest.mark.parametrize('actions', [ACTIONS, FORCES], ids=['actions', 'forces'])
@pytest.mark.parametrize('space', [NUMBERS, IMAGES, MIXED], ids=['numbers', 'images', 'mixed'])
def test_critics_are_learned_on_the_device(fake, unrolls, space, actions):
    learner, waits = learn_both(fake, unrolls, 'sac', space=space, actions=actions)
    assert looks(learner, waits) == (1, [{}] * 2)
    of_critics = {each.device for each in learner.algorithm.state()['critics'].values()}
    assert of_critics == {learner.algorithm.log_temperature.device} == {DEVICE}


@pytest.mark.parametrize('lstm_size', [0, 4])
def test_errors_go_back_to_the_replay(fake, unrolls, lstm_size):
    learner, waits = learn_both(
        fake, unrolls, 'dqn', lstm_size=lstm_size,
        options={'prioritized': True, 'double_q': False})
    assert looks(learner, waits) == (2, [{}] * 2)


@pytest.mark.parametrize(('algorithm', 'masks'), [
    ('impala', 1), ('ppo', 2), ('reinforce', 0), ('dqn', 0), ('sac', 0)])
def test_statistics_are_kept_on_the_device(fake, unrolls, algorithm, masks):
    """What counts is chosen by a mask: once for observations, once for returns."""
    options = {'normalize_returns': True, 'ppo_form': 'kl'} if algorithm == 'ppo' else {}
    learner, waits = learn_both(
        fake, unrolls, algorithm, normalize_observations=True, options=options,
        optimizer='rmsprop')
    assert [each['a mask as an index'] for each in looks(learner, waits)[1]] == [masks] * 2
    assert float(learner.policy.normalizer.count.cpu()) == learner.agent_steps


@pytest.mark.parametrize('distribution', ['gaussian', 'squashed'])
@pytest.mark.parametrize('algorithm', ['ppo', 'impala'])
def test_continuous_actions_are_learned_on_the_device(fake, unrolls, algorithm, distribution):
    learn_both(fake, unrolls, algorithm, actions=FORCES, action_distribution=distribution)


@pytest.mark.parametrize('algorithm', ['impala', 'dqn'])
def test_stacked_frames_are_put_together_for_the_device(fake, unrolls, algorithm):
    learn_both(fake, unrolls, algorithm, space=IMAGES, frames=2, updates=1)


@pytest.mark.parametrize('memory', [{}, {'last_action_reward': True}], ids=str)
@pytest.mark.parametrize('algorithm', [name for name in ALGORITHM_SETTINGS if name != 'sac'])
def test_an_image_and_numbers_and_several_actions_are_learned_on_the_device(
        fake, unrolls, algorithm, memory):
    actions = ACTIONS if algorithm == 'dqn' else MOTORS
    _, waits = learn_both(
        fake, unrolls, algorithm, space=MIXED, actions=actions, frames=2, updates=1,
        normalize_observations=True, **memory)
    assert not any(name.startswith('a copy to the device') for name in waits[0])


def test_a_bad_unroll_leaves_the_device_as_it_was(fake, unrolls):
    learners = [make('impala', device, IMAGES, frames=2) for device in (CPU, DEVICE)]
    bad = unrolls(0, learners[0])
    bad[1].arrays['reset_index'] = np.array([[50, 0]], np.int32)
    bad[1].arrays['reset_stacks'] = np.zeros((1, *IMAGES.shape), np.uint8)
    with pytest.raises(UnrollError, match='^reset_index: '):
        learners[1].update(bad)
    assert_same(*(each.update(unrolls(1, learners[0])) for each in learners))


@pytest.mark.parametrize('optimizer', ['adam', 'rmsprop'])
@pytest.mark.parametrize('algorithm', ALGORITHM_SETTINGS)
def test_a_run_goes_on_on_another_device(fake, unrolls, algorithm, optimizer):
    settings = {'optimizer': optimizer, 'options': {'normalize_returns': True}}

    def start(device, seed):
        # Of dqn and sac, the replay is not kept: it begins anew everywhere.
        return make(algorithm, device, normalize_observations=True, seed=seed, **settings)

    first = start(CPU, 1)
    first.update(unrolls(0, first))
    saved = pack(first.state())
    # A checkpoint is read to host memory, wherever its tensors were.
    there = start(DEVICE, 2)
    there.load_state(unpack(saved))
    back = start(CPU, 3)
    back.load_state(unpack(pack(there.state())))
    stayed = start(CPU, 4)
    stayed.load_state(unpack(saved))
    found = []
    for learner in (stayed, there, back):
        torch.manual_seed(9)
        found.append([learner.update(unrolls(update, learner)) for update in (1, 2)])
    for learner, figures in ((there, found[1]), (back, found[2])):
        for one, other in zip(figures, found[0], strict=True):
            assert_same(one, other)
        assert_same(learner.weights(), stayed.weights())

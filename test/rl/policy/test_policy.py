"""Policy network: heads, images, state and resets, rejected inputs."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.rl.algorithm_config import DqnConfig, SacConfig
from vdl_ros.rl.policy import factory
from vdl_ros.rl.policy import precision as module
from vdl_ros.rl.policy.distributions import (
    Boltzmann,
    Categorical,
    DiagonalGaussian,
    EpsilonGreedy,
    MultiCategorical,
    SquashedGaussian,
)
from vdl_ros.rl.train_config import TrainConfig

IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(6)
FORCES = spaces.Box(-1, 1, (2,), np.float32)
MOTORS = spaces.MultiDiscrete([3, 2])
MIXED = ImageAndVector(spaces.Box(0, 255, (3, 37, 37), np.uint8), 5)
DQN = DqnConfig()
SAC = SacConfig()


def make(space=NUMBERS, action_space=ACTIONS, own=None, precision='float32', **config):
    return factory.make_policy(
        TrainConfig(precision=precision, **config), space, action_space, own)


def observations(space, *lead):
    rng = np.random.default_rng(0)
    if space is MIXED:
        rows = np.empty((*lead, *space.shape), np.uint8)
        images, vectors = space.split(rows)
        images[...] = rng.integers(0, 256, images.shape, np.uint8)
        vectors[...] = rng.normal(size=vectors.shape)
        return torch.from_numpy(rows)
    if space.dtype == np.uint8:
        return torch.from_numpy(rng.integers(0, 256, (*lead, *space.shape), np.uint8))
    return torch.from_numpy(rng.normal(size=(*lead, *space.shape)).astype(space.dtype))


@pytest.mark.parametrize('lead', [(), (5,), (3, 2)])
@pytest.mark.parametrize(('action_space', 'own', 'size'), [
    (ACTIONS, None, 6), (FORCES, None, 4), (MOTORS, None, 5), (ACTIONS, DQN, 7),
    (FORCES, SAC, 4)], ids=['logits', 'forces', 'motors', 'values', 'sac'])
@pytest.mark.parametrize(('network', 'space'), [
    ('mlp', NUMBERS), ('mlp', spaces.Box(0, 1, (2, 3), np.float64)), ('mlp', IMAGES),
    ('impala', IMAGES), ('nature', IMAGES), ('impala', spaces.Box(0, 255, (1, 36, 40), np.uint8)),
    ('nature', spaces.Box(0, 255, (3, 36, 36), np.uint8)),
    ('resnet', spaces.Box(0, 255, (3, 36, 36), np.uint8)),
    ('universe', spaces.Box(0, 255, (40, 36, 3), np.uint8)), ('impala', MIXED), ('mlp', MIXED)])
def test_any_leading_axes_are_kept(network, space, action_space, own, size, lead):
    policy = make(space, action_space, own, network=network)
    parameters, values, state = policy(observations(space, *lead))
    assert parameters.shape == (*lead, size)
    assert values.shape == lead
    assert parameters.dtype == values.dtype == torch.float32
    assert state.shape == (0, 0)


@pytest.mark.parametrize(('network', 'space'), [
    ('mlp', NUMBERS), ('impala', IMAGES), ('nature', IMAGES), ('resnet', IMAGES),
    ('universe', IMAGES), ('impala', MIXED), ('mlp', MIXED)])
def test_outputs_of_an_observation_do_not_depend_on_the_batch(network, space):
    policy = make(space, network=network)
    batch = observations(space, 2, 3)
    parameters, values, _ = policy(batch)
    one_parameters, one_value, _ = policy(batch[1, 2])
    torch.testing.assert_close(parameters[1, 2], one_parameters, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(values[1, 2], one_value, rtol=1e-4, atol=1e-5)


def test_channels_may_come_last():
    last = spaces.Box(0, 255, (84, 90, 3), np.uint8)
    first = spaces.Box(0, 255, (3, 84, 90), np.uint8)
    one, other = make(last, network='impala'), make(first, network='impala')
    other.load_state_dict(one.state_dict())
    images = observations(last, 4)
    torch.testing.assert_close(one(images).values, other(images.movedim(-1, 1)).values)
    assert one.image_shape == other.image_shape == (3, 84, 90)


@pytest.mark.parametrize('network', ['impala', 'resnet'])
def test_channels_lie_last_where_that_is_faster(network):
    policy = make(IMAGES, network=network)
    images = observations(IMAGES, 2)

    def lie_last():
        return policy.prepare(images)[0].is_contiguous(memory_format=torch.channels_last)

    assert lie_last()
    learned = policy(images)
    with torch.no_grad():
        assert lie_last() == (network == 'resnet')
        for one, other in zip(policy(images)[:2], learned[:2], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_pixels_are_scaled_to_one():
    policy = make(spaces.Box(0, 255, (4,), np.uint8), network='mlp')
    pixels = torch.tensor([0, 51, 102, 255], dtype=torch.uint8)
    seen = []
    policy.policy_torso.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    policy(pixels)
    torch.testing.assert_close(seen[0], torch.tensor([[0.0, 0.2, 0.4, 1.0]]))
    policy(pixels.float())
    assert seen[1].max() == 255  # numbers that are no pixels stay as they are
    assert pixels.tolist() == [0, 51, 102, 255]


@pytest.mark.parametrize('network', ['impala', 'nature', 'resnet'])
def test_bfloat16_outputs_are_close_and_gradients_are_float32(network):
    torch.manual_seed(0)
    exact = make(IMAGES, network=network)
    coarse = make(IMAGES, network=network, precision='bfloat16')
    coarse.load_state_dict(exact.state_dict())
    images = observations(IMAGES, 6)
    dtypes = []
    first = next(each for each in coarse.modules() if isinstance(each, torch.nn.Conv2d))
    first.register_forward_hook(lambda *call: dtypes.append(call[2].dtype))
    for found, expected in zip(coarse(images)[:2], exact(images)[:2], strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
    assert dtypes == [torch.bfloat16]
    sum(each.sum() for each in coarse(images)[:2]).backward()
    assert all(each.grad.dtype == torch.float32 for each in coarse.parameters())


@pytest.mark.parametrize('faster', [True, False])
def test_auto_chooses_the_faster_precision_only_for_images(monkeypatch, faster):
    tried = []

    def is_faster(work):
        tried.append(work())
        return faster

    monkeypatch.setattr(module, 'faster_in_bfloat16', is_faster)
    state = torch.get_rng_state()
    make(network='mlp')
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    assert make(network='mlp', precision='auto').precision == torch.float32
    assert torch.equal(torch.get_rng_state(), before)
    assert not tried
    for space in (IMAGES, spaces.Box(0, 255, (84, 84, 3), np.uint8)):
        found = make(space, network='nature', precision='auto').precision
        assert found == (torch.bfloat16 if faster else torch.float32)
    assert len(tried) == 2


def test_auto_chooses_the_network_for_the_observations():
    def has_convolution(space):
        return any(isinstance(each, torch.nn.Conv2d) for each in make(space).modules())

    assert has_convolution(IMAGES)
    assert has_convolution(spaces.Box(0, 255, (1, 36, 36), np.uint8))
    assert not has_convolution(spaces.Box(0, 255, (1, 35, 84), np.uint8))
    assert not has_convolution(NUMBERS)
    assert not has_convolution(spaces.Box(0, 255, (4, 8, 8), np.uint8))
    assert not has_convolution(spaces.Box(0, 1, (4, 84, 84), np.float32))


@pytest.mark.parametrize(('settings', 'own', 'action_space', 'family'), [
    ({}, None, ACTIONS, Categorical), ({}, None, FORCES, DiagonalGaussian),
    ({}, None, MOTORS, MultiCategorical),
    ({'action_distribution': 'squashed'}, None, FORCES, SquashedGaussian),
    ({}, DQN, ACTIONS, EpsilonGreedy),
    ({}, DqnConfig(exploration='boltzmann'), ACTIONS, Boltzmann)])
def test_the_distribution_follows_from_space_and_settings(settings, own, action_space, family):
    assert type(make(NUMBERS, action_space, own, **settings).distribution) is family


def test_a_new_policy_is_nearly_uniform():
    probabilities = make(IMAGES, network='impala')(observations(IMAGES, 10)).parameters.softmax(-1)
    assert (probabilities - 1 / 6).abs().max() < 0.05


@pytest.mark.parametrize('settings', [
    {}, {'lstm_size': 5}, {'action_distribution': 'squashed'}], ids=str)
def test_a_gaussian_policy_learns_its_deviation(settings):
    policy = make(NUMBERS, FORCES, **settings)
    parameters, _, _ = policy(observations(NUMBERS, 4, 1), torch.zeros(4, 1, dtype=torch.bool),
                              policy.initial_state(1))
    policy.distribution.entropy(parameters).sum().backward()
    assert policy.log_std.grad.tolist() == [4.0, 4.0]
    policy = make(NUMBERS, FORCES, initial_std=0.5, **settings)
    assert policy.log_std.exp().tolist() == [0.5, 0.5]


@pytest.mark.parametrize('lstm_size', [0, 5])
def test_action_values_have_one_head_and_the_exploration_as_last_parameter(lstm_size):
    policy = make(own=DQN, lstm_size=lstm_size)
    assert policy.value_head is None
    assert policy.value_torso is None
    resets = torch.zeros(3, 2, dtype=torch.bool)
    inputs = observations(NUMBERS, 3, 2), resets, policy.initial_state(2)
    policy.exploration = torch.tensor([0.25])
    parameters, values, _ = policy(*inputs)
    assert torch.equal(values, parameters[..., :-1].amax(-1))
    assert (parameters[..., -1] == 0.25).all()
    # One for each environment, as central inference has it.
    policy.exploration = torch.tensor([0.5, 0.125])
    each, _, _ = policy(*inputs)
    assert torch.equal(each[..., -1], torch.tensor([[0.5, 0.125]] * 3))
    assert torch.equal(each[..., :-1], parameters[..., :-1])
    values.sum().backward()
    assert policy.policy_head.weight.grad.abs().sum() > 0


def test_vectors_have_a_separate_value_torso_and_images_share_one():
    assert make().value_torso is not None
    assert make(IMAGES, network='impala').value_torso is None
    assert make(lstm_size=4).value_torso is None
    assert make(MIXED, network='mlp').value_torso is None


@pytest.mark.parametrize(('network', 'space'), [
    ('mlp', NUMBERS), ('impala', IMAGES), ('universe', IMAGES)])
@pytest.mark.parametrize(('action_space', 'own', 'size'), [
    (ACTIONS, None, 6), (FORCES, None, 4), (MOTORS, None, 5), (ACTIONS, DQN, 7)],
    ids=['logits', 'forces', 'motors', 'values'])
def test_an_lstm_keeps_leading_axes_and_returns_a_state(network, space, action_space, own, size):
    policy = make(space, action_space, own, network=network, lstm_size=5)
    assert policy.state_size == 10
    before = policy.initial_state(3)
    assert before.shape == (3, 10)
    assert not before.any()
    parameters, values, after = policy(
        observations(space, 4, 3), torch.zeros(4, 3, dtype=torch.bool), before)
    assert (parameters.shape, values.shape, after.shape) == ((4, 3, size), (4, 3), (3, 10))
    assert not torch.equal(after[0], after[1])
    assert make(space).initial_state(3).shape == (3, 0)


def test_an_lstm_is_torchs():
    policy = make(lstm_size=5)
    batch, before = observations(NUMBERS, 4, 3), torch.randn(3, 10)
    parameters, _, after = policy(batch, torch.zeros(4, 3, dtype=torch.bool), before)
    whole = torch.nn.LSTM(64, 5)
    for name, value in policy.lstm.named_parameters():
        getattr(whole, f'{name}_l0').data.copy_(value)
    hidden, cell = (each.contiguous()[None] for each in before.chunk(2, -1))
    outputs, (hidden, cell) = whole(policy.policy_torso(batch), (hidden, cell))
    torch.testing.assert_close(parameters, policy.policy_head(outputs))
    torch.testing.assert_close(after, torch.cat([hidden[0], cell[0]], -1))


def test_step_by_step_and_whole_sequences_give_the_same_outputs():
    policy = make(lstm_size=5)
    batch, state = observations(NUMBERS, 6, 3), torch.randn(3, 10)
    is_reset = torch.rand(6, 3) < 0.3
    assert is_reset.any()
    # Several steps without a reset are computed together.
    is_reset[-3:] = False
    whole = policy(batch, is_reset, state)
    for t in range(6):
        parameters, values, state = policy(batch[t:t + 1], is_reset[t:t + 1], state)
        torch.testing.assert_close(parameters[0], whole.parameters[t])
        torch.testing.assert_close(values[0], whole.values[t])
    torch.testing.assert_close(state, whole.state)


def test_outputs_depend_on_earlier_steps_only_since_the_last_reset():
    policy = make(lstm_size=5)
    batch, before = observations(NUMBERS, 5, 2), torch.zeros(2, 10)
    is_reset = torch.zeros(5, 2, dtype=torch.bool)
    is_reset[2, 1] = True
    changed = batch.clone()
    changed[0] += 1.0
    one, other = policy(batch, is_reset, before), policy(changed, is_reset, before + 0.3)
    same = (one.parameters == other.parameters).all(-1)
    assert same.tolist() == [[False, False]] * 2 + [[False, True]] * 3
    assert torch.equal(one.state[1], other.state[1])
    assert not torch.equal(one.state[0], other.state[0])
    # As if the episode were the first thing ever seen.
    alone = policy(batch[2:, 1:], is_reset[2:, 1:], policy.initial_state(1))
    torch.testing.assert_close(alone.parameters[:, 0], one.parameters[2:, 1])


@pytest.mark.parametrize('lstm_size', [0, 5])
@pytest.mark.parametrize(('action_space', 'own', 'last_size'), [
    (ACTIONS, None, 7), (FORCES, None, 3), (ACTIONS, DQN, 7)], ids=['logits', 'forces', 'values'])
@pytest.mark.parametrize(('network', 'space'), [('mlp', NUMBERS), ('impala', IMAGES)])
def test_the_state_contains_the_last_action_and_reward_if_they_are_inputs(
        network, space, action_space, own, last_size, lstm_size):
    policy = make(space, action_space, own, network=network, lstm_size=lstm_size,
                  last_action_reward=True)
    with torch.no_grad():  # heads begin so small that nothing would matter
        policy.policy_head.weight.mul_(100)
    assert policy.state_size == 2 * lstm_size + last_size
    batch, is_reset = observations(space, 6, 3), torch.rand(6, 3) < 0.3
    is_reset[2, 1], is_reset[3] = True, torch.tensor([True, False, False])
    state, rewards = torch.rand(3, policy.state_size), 3 * torch.randn(6, 3)
    actions = torch.randn(6, 3, 2) if action_space is FORCES else torch.randint(6, (6, 3))
    whole = policy(batch, is_reset, state, actions, rewards)
    now = state
    for t in range(6):
        parameters, values, now = policy(batch[t:t + 1], is_reset[t:t + 1], now)
        torch.testing.assert_close(parameters[0], whole.parameters[t], rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(values[0], whole.values[t], rtol=1e-5, atol=1e-4)
        now = policy.append_last_action(now, actions[t], rewards[t])
        last = now[:, -last_size:]
        torch.testing.assert_close(last[:, -1], rewards[t].clamp(-1, 1))
        shown = actions[t] if action_space is FORCES else torch.eye(6)[actions[t]]
        assert torch.equal(last[:, :-1], shown)
    # What was done at 2 counts at 3, but not where an episode begins there.
    other_actions, other_rewards = actions.clone(), rewards.clone()
    other_actions[2] = 5 - actions[2]
    other_rewards[2] = -0.5 * rewards[2].sign()
    for given in ((other_actions, rewards), (actions, other_rewards)):
        other = policy(batch, is_reset, state, *given)
        same = (other.parameters == whole.parameters).all(-1)
        assert same[:3].all()
        assert same[3, 0]
        assert not same[3, 1:].any()


def test_the_state_is_unchanged_if_last_action_and_reward_are_no_inputs():
    policy, state = make(lstm_size=5), torch.rand(2, 10)
    assert policy.append_last_action(state, torch.tensor([1, 2]), torch.ones(2)) is state


def test_no_gradient_flows_through_a_reset():
    policy = make(lstm_size=5)
    before = torch.randn(2, 10, requires_grad=True)
    is_reset = torch.tensor([[False, False], [True, False]])
    policy(observations(NUMBERS, 2, 2), is_reset, before).values[1].sum().backward()
    assert not before.grad[0].any()
    assert before.grad[1].abs().sum() > 0


def test_the_statistics_of_normalization_are_part_of_the_weights():
    policy = make(normalize_observations=True)
    numbers = observations(NUMBERS, 500) * torch.tensor([1.0, 10.0, 0.1]) + 5.0
    policy.normalizer.update(numbers)
    seen = []
    policy.policy_torso.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    policy(numbers)
    torch.testing.assert_close(seen[0].mean(0), torch.zeros(3), rtol=0, atol=1e-4)
    torch.testing.assert_close(seen[0].std(0), torch.ones(3), rtol=0.01, atol=0)
    other = make(normalize_observations=True)
    other.load_state_dict(policy.state_dict())
    assert torch.equal(other(numbers).values, policy(numbers).values)
    # They are counted, not learned by gradients.
    assert not any('normalizer' in name for name, _ in policy.named_parameters())
    assert make(IMAGES, network='impala', normalize_observations=True).normalizer is None
    assert make().normalizer is None


@pytest.mark.parametrize('network', ['impala', 'mlp'])
@pytest.mark.parametrize('own', [None, DQN], ids=['policy', 'values'])
def test_the_layers_take_the_image_and_then_the_numbers(network, own):
    policy = make(MIXED, own=own, network=network)
    rows = observations(MIXED, 4)
    images, vectors = (torch.from_numpy(each.copy()) for each in MIXED.split(rows.numpy()))
    images = images / 255
    features = policy.policy_torso(images if network == 'impala' else images.flatten(1))
    joint = torch.relu(policy.joint[0](torch.cat([features, vectors], -1)))
    wanted = policy.policy_head(joint)
    parameters, values, _ = policy(rows)
    torch.testing.assert_close(parameters[:, :6], wanted)
    torch.testing.assert_close(
        values, wanted.amax(-1) if own else policy.value_head(joint).squeeze(-1))
    values.sum().backward()
    learned = policy.joint[0].weight.grad
    assert (learned[:, -5:].abs().sum(0) > 0).all(), 'every number is an input'
    assert all(each.grad.abs().sum() > 0 for each in policy.policy_torso.parameters())


def test_numbers_beside_an_image_are_normalized_and_the_image_is_not():
    policy = make(MIXED, network='impala', normalize_observations=True)
    rows = observations(MIXED, 300)
    images, vectors = MIXED.split(rows.numpy())
    vectors *= 9
    vectors += 4
    assert torch.equal(policy.numbers(rows), torch.from_numpy(vectors.copy()))
    policy.normalizer.update(policy.numbers(rows))
    seen = []
    for each in (policy.policy_torso, policy.joint):
        each.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    policy(rows)
    torch.testing.assert_close(seen[0], torch.from_numpy(images / np.float32(255)))
    torch.testing.assert_close(seen[1][:, -5:].mean(0), torch.zeros(5), rtol=0, atol=1e-4)
    torch.testing.assert_close(seen[1][:, -5:].std(0), torch.ones(5), rtol=0.01, atol=0)


def test_auto_is_an_image_network_for_an_image_and_numbers():
    assert make(MIXED).of_images
    assert make(MIXED, precision='bfloat16').precision == torch.bfloat16
    assert not make(MIXED, network='mlp').of_images
    rows = observations(MIXED, 3)
    coarse, exact = make(MIXED, precision='bfloat16'), make(MIXED)
    coarse.load_state_dict(exact.state_dict())
    torch.testing.assert_close(coarse(rows).values, exact(rows).values, rtol=0.05, atol=0.02)


def test_bytes_are_normalized_without_scaling():
    policy = make(IMAGES, network='mlp', normalize_observations=True)
    images = observations(IMAGES, 200)
    policy.normalizer.update(images.flatten(1))
    seen = []
    policy.policy_torso.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    policy(images)
    torch.testing.assert_close(seen[0].mean(0), torch.zeros(4 * 84 * 84), rtol=0, atol=1e-3)
    torch.testing.assert_close(seen[0].std(0), torch.ones(4 * 84 * 84), rtol=0.01, atol=0)


def test_only_image_networks_use_bfloat16():
    assert make(precision='bfloat16').precision == torch.float32
    assert make(IMAGES, network='mlp', precision='bfloat16').precision == torch.float32
    assert make(IMAGES, network='impala', precision='bfloat16').precision == torch.bfloat16


@pytest.mark.parametrize('network', ['impala', 'nature', 'resnet', 'universe'])
@pytest.mark.parametrize('space', [
    NUMBERS, spaces.Box(0, 255, (4, 35, 84), np.uint8), spaces.Box(0, 1, (4, 84, 84), np.float32),
    spaces.Box(0, 255, (84, 84), np.uint8)], ids=str)
def test_image_networks_reject_other_observations(network, space):
    with pytest.raises(ValueError, match=rf"^network '{network}' needs images[^\n]*$"):
        make(space, network=network)


def test_observations_must_be_one_array():
    with pytest.raises(ValueError, match=r'^observation space Discrete\(3\) is not supported'):
        make(spaces.Discrete(3))


def test_action_values_need_a_discrete_action_space():
    with pytest.raises(ValueError, match=r"^algorithm: 'dqn' cannot act in Box[^\n]*$"):
        make(NUMBERS, FORCES, DQN)
    for space in (MOTORS, spaces.Box(-np.inf, 1, (2,), np.float32)):
        with pytest.raises(ValueError, match=r"^algorithm: 'sac' cannot act in [^\n]*: Discrete "
                                             r'from 0, or a Box with a finite range; [^\n]*$'):
            make(NUMBERS, space, SAC)


def test_a_range_that_is_not_finite_cannot_be_squashed_into():
    endless = spaces.Box(-np.inf, 1, (2,), np.float32)
    with pytest.raises(ValueError, match=r"^action_distribution: 'squashed' is not [^\n]*$"):
        make(NUMBERS, endless, action_distribution='squashed')

"""Policy network: heads, images, state and resets, rejected inputs."""

import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.play.external_policy import Chunks
from vdl_ros.rl.policy import policy as module
from vdl_ros.rl.policy.distributions import Boltzmann, DiagonalGaussian, SquashedGaussian
from vdl_ros.rl.settings import BcConfig, DqnConfig, SacConfig, TrainConfig

IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
SMALL = spaces.Box(0, 255, (3, 36, 36), np.uint8)
NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(6)
FORCES = spaces.Box(-1, 1, (2,), np.float32)
MOTORS = spaces.MultiDiscrete([3, 2])
MIXED = ImageAndVector(spaces.Box(0, 255, (3, 37, 37), np.uint8), 5)
DQN = DqnConfig()
SAC = SacConfig()


def make(space=NUMBERS, action_space=ACTIONS, own=None, precision='float32', **config):
    return module.make_policy(TrainConfig(precision=precision, **config), space, action_space, own)


@pytest.mark.parametrize('action_space', [FORCES, ACTIONS, MOTORS])
def test_a_step_of_chunks_is_the_mean_of_what_was_given_for_it(action_space):
    made = make(action_space=action_space, own=BcConfig(chunk=4))
    rows = observations(NUMBERS, 9, 2)
    given = made.chunks(rows)
    assert given.shape[:3] == (9, 2, 4)
    chunks, state = Chunks(1.0, 100.0, 0.01), made.initial_state(2)
    for step in range(9):
        if step == 6:
            chunks.clear()
        chunks.ask('x', step)
        chunks.answer('x', given[step, 1].detach().numpy())
        # The first one of both begins its episodes together.
        resets = torch.tensor([[step in (0, 6), step == 6]])
        parameters, _, state = made(rows[step:step + 1], resets, state)
        np.testing.assert_allclose(parameters[0, 1].detach(), chunks.at(step), rtol=1e-5)


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


def inputs_of(layer):
    """Return the list that the first input of each call of a layer is appended to."""
    seen = []
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    return seen


def close(found, expected, case='', **tolerances):
    torch.testing.assert_close(
        found, expected, msg=lambda message: f'{case}: {message}', **tolerances)


@pytest.mark.parametrize('network', ['mlp', 'impala', 'nature', 'resnet', 'universe'])
def test_any_leading_axes_are_kept_and_no_output_depends_on_the_batch(network):
    one, last = (spaces.Box(0, 255, shape, np.uint8) for shape in ((1, 36, 40), (40, 36, 3)))
    of_numbers = [(NUMBERS, ACTIONS, None, 6),
                  (spaces.Box(0, 1, (2, 3), np.float64), FORCES, None, 4)]
    cases = [(SMALL, MOTORS, None, 5), (last, ACTIONS, DQN, 7), (one, FORCES, SAC, 4),
             (MIXED, ACTIONS, None, 6)]
    for space, action_space, own, size in cases + of_numbers * (network == 'mlp'):
        policy = make(space, action_space, own, network=network)
        batch = observations(space, 3, 2)
        whole = policy(batch)
        assert whole.parameters.shape == (3, 2, size), space
        assert whole.parameters.dtype == whole.values.dtype == torch.float32, space
        for at in ((2, 1), (2,)):
            parameters, values, _ = policy(batch[at])
            close(parameters, whole.parameters[at], space, rtol=1e-4, atol=1e-6)
            close(values, whole.values[at], space, rtol=1e-4, atol=1e-5)


def test_channels_may_come_last():
    last = spaces.Box(0, 255, (84, 90, 3), np.uint8)
    first = spaces.Box(0, 255, (3, 84, 90), np.uint8)
    one, other = make(last, network='impala'), make(first, network='impala')
    other.load_state_dict(one.state_dict())
    images = observations(last, 4)
    close(one(images).values, other(images.movedim(-1, 1)).values)
    assert one.image_shape == other.image_shape == (3, 84, 90)


def test_bfloat16_outputs_are_close_and_gradients_are_float32():
    for space, network in ((IMAGES, 'impala'), (IMAGES, 'nature'), (IMAGES, 'resnet'),
                           (MIXED, 'auto')):
        torch.manual_seed(0)
        exact = make(space, network=network)
        coarse = make(space, network=network, precision='bfloat16')
        coarse.load_state_dict(exact.state_dict())
        images, dtypes = observations(space, 3), []
        first = next(each for each in coarse.modules() if isinstance(each, torch.nn.Conv2d))
        first.register_forward_hook(lambda *call, dtypes=dtypes: dtypes.append(call[2].dtype))
        outputs = coarse(images)[:2]
        for found, expected in zip(outputs, exact(images)[:2], strict=True):
            close(found, expected, network, rtol=0.05, atol=0.02)
        assert dtypes == [torch.bfloat16], network
        sum(each.sum() for each in outputs).backward()
        assert all(each.grad.dtype == torch.float32 for each in coarse.parameters()), network
    assert make(IMAGES, network='mlp', precision='bfloat16').precision == torch.float32


def test_auto_chooses_the_faster_precision_only_for_images(monkeypatch):
    for faster, precision in ((True, torch.bfloat16), (False, torch.float32)):
        tried = []

        def is_faster(work, tried=tried, faster=faster):
            tried.append(work())
            return faster

        monkeypatch.setattr(module, 'faster_in_bfloat16', is_faster)
        assert make(network='mlp', precision='auto').precision == torch.float32
        assert not tried
        for shape in ((3, 36, 36), (36, 36, 3), (1, 36, 9000)):
            space = spaces.Box(0, 255, shape, np.uint8)
            assert make(space, network='universe', precision='auto').precision == precision
        assert [len(each) for each in tried] == [16, 16, 3], 'a trial of large images is short'


def test_a_gaussian_policy_learns_its_deviation():
    for settings in ({}, {'lstm_size': 5}, {'action_distribution': 'squashed'}):
        policy = make(NUMBERS, FORCES, **settings)
        parameters, _, _ = policy(
            observations(NUMBERS, 4, 1), torch.zeros(4, 1, dtype=torch.bool),
            policy.initial_state(1))
        DiagonalGaussian.entropy(policy.distribution, parameters).sum().backward()
        assert policy.log_std.grad.tolist() == [4.0, 4.0], settings
        squashes = isinstance(policy.distribution, SquashedGaussian)
        assert squashes == ('action_distribution' in settings)
        policy = make(NUMBERS, FORCES, initial_std=0.5, **settings)
        assert policy.log_std.exp().tolist() == [0.5, 0.5], settings


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
    softmax = make(own=DqnConfig(exploration='boltzmann'))
    assert isinstance(softmax.distribution, Boltzmann)
    # One for each environment, as central inference has it.
    policy.exploration = torch.tensor([0.5, 0.125])
    each, _, _ = policy(*inputs)
    assert torch.equal(each[..., -1], torch.tensor([[0.5, 0.125]] * 3))
    assert torch.equal(each[..., :-1], parameters[..., :-1])
    values.sum().backward()
    assert policy.policy_head.weight.grad.abs().sum() > 0


def test_an_lstm_is_torchs():
    policy = make(lstm_size=5)
    batch, before = observations(NUMBERS, 4, 3), torch.randn(3, 10)
    parameters, _, after = policy(batch, torch.zeros(4, 3, dtype=torch.bool), before)
    whole = torch.nn.LSTM(64, 5)
    for name, value in policy.lstm.named_parameters():
        getattr(whole, f'{name}_l0').data.copy_(value)
    hidden, cell = (each.contiguous()[None] for each in before.chunk(2, -1))
    outputs, (hidden, cell) = whole(policy.policy_torso(batch), (hidden, cell))
    close(parameters, policy.policy_head(outputs))
    close(after, torch.cat([hidden[0], cell[0]], -1))


@pytest.mark.parametrize(('action_space', 'own', 'last_size', 'lstm_size'), [
    (ACTIONS, None, 7, 0), (ACTIONS, DQN, 7, 5), (FORCES, None, 3, 5)])
def test_the_state_contains_the_last_action_and_reward_if_they_are_inputs(
        action_space, own, last_size, lstm_size):
    policy = make(NUMBERS, action_space, own, lstm_size=lstm_size, last_action_reward=True)
    with torch.no_grad():  # heads begin so small that nothing would matter
        policy.policy_head.weight.mul_(100)
    assert policy.state_size == 2 * lstm_size + last_size
    batch, is_reset = observations(NUMBERS, 6, 3), torch.rand(6, 3) < 0.3
    is_reset[3] = torch.tensor([True, False, False])
    # Several steps without a reset are computed together.
    is_reset[-2:] = False
    state, rewards = torch.rand(3, policy.state_size), 3 * torch.randn(6, 3)
    actions = torch.randn(6, 3, 2) if action_space is FORCES else torch.randint(6, (6, 3))
    whole = policy(batch, is_reset, state, actions, rewards)
    now = state
    for t in range(6):
        parameters, values, now = policy(batch[t:t + 1], is_reset[t:t + 1], now)
        close(parameters[0], whole.parameters[t], t, rtol=1e-5, atol=1e-4)
        close(values[0], whole.values[t], t, rtol=1e-5, atol=1e-4)
        now = policy.append_last_action(now, actions[t], rewards[t])
        last = now[:, -last_size:]
        close(last[:, -1], rewards[t].clamp(-1, 1))
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
        assert same[3].tolist() == [True, False, False]


def test_vectors_and_bytes_are_normalized_by_statistics_that_are_part_of_the_weights():
    numbers = observations(NUMBERS, 500) * torch.tensor([1.0, 10.0, 0.1]) + 5.0
    pixels = spaces.Box(0, 255, (2, 3, 3), np.uint8)
    for space, given in ((NUMBERS, numbers), (pixels, observations(pixels, 500))):
        policy, other = (make(space, normalize_observations=True) for _ in range(2))
        policy.normalizer.update(given.flatten(1))
        seen = inputs_of(policy.policy_torso)
        values = policy(given).values
        close(seen[0].mean(0), torch.zeros_like(seen[0][0]), rtol=0, atol=1e-4)
        close(seen[0].std(0), torch.ones_like(seen[0][0]), rtol=0.01, atol=0)
        other.load_state_dict(policy.state_dict())
        assert torch.equal(other(given).values, values)
    # They are counted, not learned by gradients.
    assert not any('normalizer' in name for name, _ in policy.named_parameters())
    assert make(IMAGES, network='impala', normalize_observations=True).normalizer is None
    assert make().normalizer is None
    number = make(spaces.Box(-1.0, 1.0, (), np.float32), normalize_observations=True)
    assert number.numbers(torch.zeros(4)).shape == (4, 1)


def test_numbers_beside_an_image_are_normalized_and_the_image_is_not():
    policy = make(MIXED, network='impala', normalize_observations=True)
    rows = observations(MIXED, 300)
    images, vectors = MIXED.split(rows.numpy())
    vectors *= 9
    vectors += 4
    assert torch.equal(policy.numbers(rows), torch.from_numpy(vectors.copy()))
    policy.normalizer.update(policy.numbers(rows))
    pixels, joint = inputs_of(policy.policy_torso), inputs_of(policy.joint)
    policy(rows)
    close(pixels[0], torch.from_numpy(images / np.float32(255)))
    close(joint[0][:, -5:].mean(0), torch.zeros(5), rtol=0, atol=1e-4)
    close(joint[0][:, -5:].std(0), torch.ones(5), rtol=0.01, atol=0)


def test_spaces_that_do_not_fit_are_refused_in_one_line():
    endless = spaces.Box(-np.inf, 1, (2,), np.float32)
    of_sac = (r"algorithm: 'sac' cannot act in [^\n]*: Discrete or MultiDiscrete from 0, or a "
              r'Box with bounds from -1e9 to 1e9; [^\n]*')
    cases = [
        (spaces.Discrete(3), ACTIONS, None, {}, r'observation space Discrete\(3\) is not .*'),
        (NUMBERS, FORCES, DQN, {}, r"algorithm: 'dqn' cannot act in Box.*"),
        (NUMBERS, endless, SAC, {}, of_sac),
        (NUMBERS, endless, None, {'action_distribution': 'squashed'},
         r"action_distribution: 'squashed' is not .*")]
    wrong = [NUMBERS, spaces.Box(0, 255, (4, 35, 84), np.uint8),
             spaces.Box(0, 1, (4, 84, 84), np.float32), spaces.Box(0, 255, (84, 84), np.uint8)]
    cases += [(space, ACTIONS, None, {'network': network}, f"network '{network}' needs images.*")
              for space, network in zip(wrong, ('impala', 'nature', 'resnet', 'universe'),
                                        strict=True)]
    for space, action_space, own, settings, message in cases:
        with pytest.raises(ValueError) as error:
            make(space, action_space, own, **settings)
        assert re.fullmatch(message, str(error.value)), message

"""Networks: shapes, images, and what they refuse."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from vdl_ros.rl import networks
from vdl_ros.rl.networks import make_policy

IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = spaces.Discrete(6)
FORCES = spaces.Box(-1, 1, (2,), np.float32)


def observations(space, *lead):
    rng = np.random.default_rng(0)
    if space.dtype == np.uint8:
        return torch.from_numpy(rng.integers(0, 256, (*lead, *space.shape), np.uint8))
    return torch.from_numpy(rng.normal(size=(*lead, *space.shape)).astype(space.dtype))


@pytest.mark.parametrize('lead', [(), (5,), (3, 2)])
@pytest.mark.parametrize(('action_space', 'size'), [(ACTIONS, 6), (FORCES, 4)])
@pytest.mark.parametrize(('network', 'space'), [
    ('mlp', NUMBERS), ('mlp', spaces.Box(0, 1, (2, 3), np.float64)), ('mlp', IMAGES),
    ('impala', IMAGES), ('nature', IMAGES), ('impala', spaces.Box(0, 255, (1, 36, 40), np.uint8)),
    ('nature', spaces.Box(0, 255, (3, 36, 36), np.uint8))])
def test_any_leading_axes_are_kept(network, space, action_space, size, lead):
    parameters, values = make_policy(network, space, action_space)(observations(space, *lead))
    assert parameters.shape == (*lead, size)
    assert values.shape == lead
    assert parameters.dtype == values.dtype == torch.float32


@pytest.mark.parametrize(('network', 'space'), [
    ('mlp', NUMBERS), ('impala', IMAGES), ('nature', IMAGES)])
def test_each_observation_is_judged_by_itself(network, space):
    policy = make_policy(network, space, ACTIONS)
    batch = observations(space, 2, 3)
    parameters, values = policy(batch)
    one_parameters, one_value = policy(batch[1, 2])
    torch.testing.assert_close(parameters[1, 2], one_parameters, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(values[1, 2], one_value, rtol=1e-4, atol=1e-5)


def test_pixels_are_scaled_to_one():
    bytes_space = spaces.Box(0, 255, (4,), np.uint8)
    policy = make_policy('mlp', bytes_space, ACTIONS)
    pixels = torch.tensor([0, 51, 102, 255], dtype=torch.uint8)
    seen = []
    policy.policy_torso.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    policy(pixels)
    torch.testing.assert_close(seen[0], torch.tensor([[0.0, 0.2, 0.4, 1.0]]))
    policy(pixels.float())
    assert seen[1].max() == 255  # numbers that are no pixels stay as they are
    assert pixels.tolist() == [0, 51, 102, 255]


@pytest.mark.parametrize('network', ['impala', 'nature'])
def test_bfloat16_says_nearly_the_same_and_learns_in_float32(network):
    torch.manual_seed(0)
    exact = make_policy(network, IMAGES, ACTIONS)
    coarse = make_policy(network, IMAGES, ACTIONS, precision='bfloat16')
    coarse.load_state_dict(exact.state_dict())
    images = observations(IMAGES, 6)
    dtypes = []
    coarse.policy_torso[0].register_forward_hook(lambda *call: dtypes.append(call[2].dtype))
    for found, expected in zip(coarse(images), exact(images), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
    assert dtypes == [torch.bfloat16]
    sum(each.sum() for each in coarse(images)).backward()
    assert all(each.grad.dtype == torch.float32 for each in coarse.parameters())


@pytest.mark.parametrize('faster', [True, False])
def test_auto_takes_the_precision_that_is_faster_for_images_alone(monkeypatch, faster):
    tried = []

    def is_faster(work):
        tried.append(work())
        return faster

    monkeypatch.setattr(networks, 'faster_in_bfloat16', is_faster)
    state = torch.get_rng_state()
    make_policy('mlp', NUMBERS, ACTIONS)
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    assert make_policy('mlp', NUMBERS, ACTIONS, precision='auto').precision == torch.float32
    assert torch.equal(torch.get_rng_state(), before)
    assert not tried
    for space in (IMAGES, spaces.Box(0, 255, (84, 84, 3), np.uint8)):
        found = make_policy('nature', space, ACTIONS, precision='auto').precision
        assert found == (torch.bfloat16 if faster else torch.float32)
    assert len(tried) == 2


def test_auto_takes_the_net_that_fits():
    def has_convolution(space):
        policy = make_policy('auto', space, ACTIONS)
        return any(isinstance(module, torch.nn.Conv2d) for module in policy.modules())

    assert has_convolution(IMAGES)
    assert has_convolution(spaces.Box(0, 255, (1, 36, 36), np.uint8))
    assert not has_convolution(spaces.Box(0, 255, (1, 35, 84), np.uint8))
    assert not has_convolution(NUMBERS)
    assert not has_convolution(spaces.Box(0, 255, (4, 8, 8), np.uint8))
    assert not has_convolution(spaces.Box(0, 1, (4, 84, 84), np.float32))


def test_a_new_policy_has_no_preference():
    parameters, _ = make_policy('impala', IMAGES, ACTIONS)(observations(IMAGES, 10))
    probabilities = parameters.softmax(-1)
    assert (probabilities - 1 / 6).abs().max() < 0.05


def test_a_gaussian_policy_learns_its_deviation():
    policy = make_policy('mlp', NUMBERS, FORCES)
    parameters, _ = policy(observations(NUMBERS, 4))
    policy.distribution.entropy(parameters).sum().backward()
    assert policy.log_std.grad.tolist() == [4.0, 4.0]


@pytest.mark.parametrize('network', ['impala', 'nature'])
@pytest.mark.parametrize('space', [
    NUMBERS, spaces.Box(0, 255, (4, 35, 84), np.uint8), spaces.Box(0, 1, (4, 84, 84), np.float32),
    spaces.Box(0, 255, (84, 84), np.uint8)], ids=str)
def test_a_net_for_images_refuses_other_observations(network, space):
    with pytest.raises(ValueError, match=rf"^network '{network}' needs images[^\n]*$"):
        make_policy(network, space, ACTIONS)


def test_observations_must_be_one_array():
    with pytest.raises(ValueError, match=r'^observation space Discrete\(3\) is not supported'):
        make_policy('auto', spaces.Discrete(3), ACTIONS)

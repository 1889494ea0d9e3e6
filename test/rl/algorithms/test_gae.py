"""Advantages agree with the sum that the paper writes, and with returns of n steps."""

import numpy as np
import pytest
import torch

from vdl_ros.rl.algorithms.gae import gae


def draw(seed, steps, batch):
    """Return arrays of one batch, with terminations and steps that do not count."""
    rng = np.random.default_rng(seed)
    valid = rng.random((steps, batch)) > 0.2
    discounts = np.where(rng.random((steps, batch)) < 0.2, 0.0, 0.9)
    return (discounts, rng.normal(size=(steps, batch)), rng.normal(size=(steps + 1, batch)),
            valid)


def tensors(arrays):
    return [torch.from_numpy(np.asarray(array)) for array in arrays]


@pytest.mark.parametrize('lambda_', [0.0, 0.5, 1.0])
@pytest.mark.parametrize(('steps', 'batch'), [(1, 1), (7, 1), (9, 4)])
def test_advantages_are_those_of_the_paper(naive_gae, steps, batch, lambda_):
    for seed in range(5):
        arrays = draw(seed, steps, batch)
        np.testing.assert_allclose(
            gae(*tensors(arrays), lambda_).numpy(), naive_gae(*arrays, lambda_),
            rtol=1e-9, atol=1e-12)


def test_with_lambda_1_they_are_returns_of_n_steps_less_the_value():
    for seed in range(5):
        discounts, rewards, values, valid = arrays = draw(seed, 9, 4)
        found = gae(*tensors(arrays), 1.0).numpy() + values[:-1]
        for t, b in np.argwhere(valid):
            total, factor, s = 0.0, 1.0, t
            while s < 9 and valid[s, b]:
                total += factor * rewards[s, b]
                factor *= discounts[s, b]
                s += 1
            expected = total + factor * values[s, b]
            assert found[t, b] == pytest.approx(expected, rel=1e-9)


def test_with_lambda_0_they_look_one_step_ahead():
    discounts, rewards, values, valid = arrays = draw(0, 9, 4)
    expected = rewards + discounts * values[1:] - values[:-1]
    np.testing.assert_allclose(gae(*tensors(arrays), 0.0).numpy(), np.where(valid, expected, 0.0))


@pytest.mark.parametrize(('discount', 'last'), [(0.9, 0.2 + 0.9 * 30.0), (0.0, 0.2)])
def test_a_time_limit_bootstraps_and_a_termination_does_not(discount, last):
    """An episode ends with step 1: x_2 is its last observation, x_3 a new first one."""
    values = torch.tensor([[1.0], [2.0], [30.0], [4.0], [5.0]])
    rewards = torch.tensor([[0.1], [0.2], [99.0], [0.4]])
    valid = torch.tensor([[True], [True], [False], [True]])
    discounts = torch.tensor([[0.9], [discount], [0.9], [0.9]])
    found = gae(discounts, rewards, values, valid, 1.0)[:, 0].tolist()
    assert found == pytest.approx([0.1 + 0.9 * last - 1.0, last - 2.0, 0.0, 0.4 + 4.5 - 4.0])


def test_an_ignored_step_changes_nothing_else():
    discounts, rewards, values, valid = arrays = draw(4, 10, 3)
    before = gae(*tensors(arrays), 0.9)
    rewards = np.where(valid, rewards, -1e6)
    discounts = np.where(valid, discounts, 0.3)
    assert not valid.all()
    assert torch.equal(before, gae(*tensors((discounts, rewards, values, valid)), 0.9))


def test_no_gradient_flows_through_advantages():
    arrays = tensors(draw(1, 4, 2))
    arrays[2].requires_grad_()
    assert not gae(*arrays, 0.9).requires_grad


@pytest.mark.parametrize(('position', 'name'), [
    (0, 'discounts'), (1, 'discounts'), (2, 'values'), (3, 'valid')])
def test_a_wrong_shape_is_named(position, name):
    arrays = tensors(draw(0, 4, 2))
    arrays[position] = arrays[position][:-1]
    with pytest.raises(ValueError, match=rf'^{name}: shape \(\d, 2\) is not \(\d, 2\)$'):
        gae(*arrays, 0.9)

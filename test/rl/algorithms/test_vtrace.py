"""V-trace agrees with the paper's equations written out literally."""

import numpy as np
import pytest
import torch

from vdl_ros.rl.algorithms.vtrace import vtrace


def draw(seed, steps, batch):
    """Return arrays of one batch: off-policy, with terminations and steps that do not count."""
    rng = np.random.default_rng(seed)
    valid = rng.random((steps, batch)) > 0.2
    discounts = np.where(rng.random((steps, batch)) < 0.2, 0.0, 0.9)
    return (rng.normal(0, 1.5, (steps, batch)), discounts, rng.normal(size=(steps, batch)),
            rng.normal(size=(steps + 1, batch)), valid)


def tensors(arrays):
    return [torch.from_numpy(np.asarray(array)) for array in arrays]


@pytest.mark.parametrize('lambda_', [0.0, 0.8, 1.0])
@pytest.mark.parametrize(('rho_clip', 'c_clip'), [(1.0, 1.0), (3.7, 2.2), (0.5, 1.5), (2.0, 0.0)])
@pytest.mark.parametrize(('steps', 'batch'), [(1, 1), (7, 1), (9, 4)])
def test_targets_are_those_of_the_paper(naive_vtrace, steps, batch, rho_clip, c_clip, lambda_):
    for seed in range(5):
        arrays = draw(seed, steps, batch)
        targets, advantages = vtrace(
            *tensors(arrays), rho_clip=rho_clip, c_clip=c_clip, lambda_=lambda_)
        expected = naive_vtrace(*arrays, rho_clip, c_clip, lambda_)
        np.testing.assert_allclose(targets.numpy(), expected[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(advantages.numpy(), expected[1], rtol=1e-9, atol=1e-9)


def test_float32_is_accurate_enough(naive_vtrace):
    arrays = draw(3, 40, 5)
    inputs = [each.float() if each.is_floating_point() else each for each in tensors(arrays)]
    targets, _ = vtrace(*inputs)
    assert targets.dtype == torch.float32
    np.testing.assert_allclose(
        targets.numpy(), naive_vtrace(*arrays, 1.0, 1.0)[0], rtol=1e-4, atol=1e-4)


def test_on_policy_it_is_the_return_to_the_end_of_the_unroll():
    _, _, rewards, values, _ = draw(0, 12, 3)
    steps = np.zeros((12, 3))
    targets, advantages = vtrace(
        *tensors([steps, steps + 0.9, rewards, values, np.ones((12, 3), bool)]))
    expected = values[-1]
    for t in reversed(range(12)):
        expected = rewards[t] + 0.9 * expected
        np.testing.assert_allclose(targets[t].numpy(), expected)
        np.testing.assert_allclose(advantages[t].numpy(), expected - values[t])


def ending_after_step_1(discount):
    """Return targets when an episode ends with step 1: x_2 is its last, x_3 a new first one."""
    values = torch.tensor([[1.0], [2.0], [30.0], [4.0], [5.0]])
    rewards = torch.tensor([[0.1], [0.2], [99.0], [0.4]])
    valid = torch.tensor([[True], [True], [False], [True]])
    return vtrace(torch.zeros(4, 1), torch.tensor([[0.9], [discount], [0.9], [0.9]]),
                  rewards, values, valid)


def test_a_time_limit_bootstraps_from_the_last_observation():
    targets, advantages = ending_after_step_1(0.9)
    last = 0.2 + 0.9 * 30.0
    expected = [0.1 + 0.9 * last, last, 30.0, 0.4 + 0.9 * 5.0]
    assert targets[:, 0].tolist() == pytest.approx(expected)
    assert advantages[:, 0].tolist() == pytest.approx(
        [expected[0] - 1.0, last - 2.0, 0.0, expected[3] - 4.0])


def test_a_termination_bootstraps_from_nothing():
    targets, _ = ending_after_step_1(0.0)
    assert targets[:, 0].tolist() == pytest.approx([0.1 + 0.9 * 0.2, 0.2, 30.0, 0.4 + 0.9 * 5.0])


def test_an_ignored_step_changes_nothing_else():
    arrays = draw(4, 10, 3)
    before = vtrace(*tensors(arrays))
    log_rhos, _, rewards, _, valid = arrays
    log_rhos[~valid], rewards[~valid] = 7.0, -1e6
    after = vtrace(*tensors(arrays))
    assert not valid.all()
    assert torch.equal(before.targets, after.targets)
    assert torch.equal(before.advantages, after.advantages)


def test_an_enormous_ratio_is_clipped_not_infinite():
    log_rhos = torch.tensor([[1000.0], [-1000.0]])
    ones = torch.ones(2, 1)
    targets, advantages = vtrace(log_rhos, ones, ones, torch.zeros(3, 1), ones.bool())
    assert targets[:, 0].tolist() == [1.0, 0.0]
    assert advantages[:, 0].tolist() == [1.0, 0.0]


def test_no_gradient_flows_through_targets():
    arrays = tensors(draw(1, 4, 2))
    arrays[3].requires_grad_()
    assert not vtrace(*arrays).targets.requires_grad


@pytest.mark.parametrize('position', range(1, 5))
def test_a_wrong_shape_is_named(position):
    arrays = tensors(draw(0, 4, 2))
    arrays[position] = arrays[position][:-1]
    name = ('log_rhos', 'discounts', 'rewards', 'values', 'valid')[position]
    with pytest.raises(ValueError, match=rf'^{name}: shape \(\d, 2\) is not \(\d, 2\)$'):
        vtrace(*arrays)

"""Collectives: masked means, standardising and explained variance over several learners."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from vdl_ros.rl.distributed.collectives import (
    Group,
    explained_variance,
    masked_mean,
    standardized,
)


def test_standardized_ignores_masked_values():
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    values = torch.tensor([[3.0, -1.0, 900.0], [7.0, float(2**20), 11.0]])
    found = standardized(values, mask, Group())
    counted = np.array([3.0, -1.0, 7.0, 11.0])
    expected = (counted - counted.mean()) / counted.std()
    np.testing.assert_allclose(found[mask.bool()].numpy(), expected, rtol=1e-5)
    assert not found[~mask.bool()].any()
    assert not standardized(torch.full((2, 3), 4.0), mask, Group()).any()
    assert not standardized(values, torch.zeros(2, 3), Group()).any()


def test_masked_mean_ignores_masked_values():
    values, mask = torch.tensor([3.0, 900.0, -1.0]), torch.tensor([1.0, 0.0, 1.0])
    assert float(masked_mean(values, mask, Group())) == 1.0
    assert float(masked_mean(values, mask * 0, Group())) == 0.0


def test_collectives_of_one_learner_return_its_own_values_detached():
    numbers = torch.tensor([1.0, 2.0], requires_grad=True)
    total = Group().all_reduce_sum(numbers * 3)
    assert total.tolist() == [3.0, 6.0]
    assert not total.requires_grad
    gradients = [torch.tensor([4.0])]
    Group().all_reduce_gradients(gradients)
    assert gradients[0].tolist() == [4.0]
    assert (Group().rank, Group().size) == (0, 1)


@pytest.fixture
def parts():
    """Values and masks of two learners; the first has more steps, and other numbers."""
    rng = np.random.default_rng(0)
    values = [torch.from_numpy(rng.normal(mean, 2, (6, columns)))
              for mean, columns in ((5.0, 4), (-1.0, 1))]
    masks = [torch.from_numpy((rng.random(each.shape) < 0.7).astype(np.float64))
             for each in values]
    return values, masks


def test_parts_of_a_mean_add_up_to_the_joined_one_and_so_do_gradients(pair, parts):
    values, masks = parts

    def part(which):
        def learn(group):
            mine = values[which].clone().requires_grad_()
            mean = masked_mean(mine, masks[which], group)
            mean.backward()
            return mean.detach(), mine.grad
        return learn

    (one, one_gradient), (two, two_gradient) = pair(part(0), part(1))
    joined = torch.cat(values, 1).requires_grad_()
    expected = masked_mean(joined, torch.cat(masks, 1), Group())
    expected.backward()
    torch.testing.assert_close(one + two, expected.detach())
    torch.testing.assert_close(torch.cat([one_gradient, two_gradient], 1), joined.grad)


def test_two_learners_standardize_as_one_with_all(pair, parts):
    values, masks = parts
    found = pair(*(lambda group, which=which: standardized(values[which], masks[which], group)
                   for which in (0, 1)))
    expected = standardized(torch.cat(values, 1), torch.cat(masks, 1), Group())
    torch.testing.assert_close(torch.cat(found, 1), expected)
    assert not torch.allclose(found[0], standardized(values[0], masks[0], Group()))


def test_explained_variance_of_two_learners_is_that_of_the_joined_batch(pair, parts):
    values, masks = parts
    valid = [mask.bool() for mask in masks]
    returns = [each + torch.linspace(-1, 1, each.shape[0])[:, None] for each in values]
    whole = torch.cat([each[mask] for each, mask in zip(returns, valid, strict=True)])
    errors = whole - torch.cat([each[mask] for each, mask in zip(values, valid, strict=True)])
    expected = 1.0 - float(errors.var() / whole.var())
    assert 0.0 < expected < 1.0
    found = pair(*(partial(explained_variance, values[i], returns[i], valid[i])
                   for i in range(2)))
    assert found == pytest.approx([expected] * 2)


def test_explained_variance_is_not_a_number_without_variance():
    values, returns = torch.randn(5), torch.full((5,), 2.0)
    valid = torch.ones(5, dtype=torch.bool)
    assert math.isnan(explained_variance(values, returns, valid, Group()))
    assert math.isnan(explained_variance(values, values, ~valid, Group()))
    assert explained_variance(values, values, valid, Group()) == 1.0

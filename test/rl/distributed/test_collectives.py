"""Collectives of one learner; of two they are one with the joined batch in other tests."""

import math

import numpy as np
import pytest
import torch

from vdl_ros.rl.distributed.collectives import Group, explained_variance, standardized


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


def test_explained_variance_is_a_share_and_not_a_number_without_variance():
    values, returns = torch.randn(5), torch.full((5,), 2.0)
    valid = torch.ones(5, dtype=torch.bool)
    assert math.isnan(explained_variance(values, returns, valid, Group()))
    assert math.isnan(explained_variance(values, values, ~valid, Group()))
    assert explained_variance(values, values, valid, Group()) == 1.0
    whole, valid[3] = torch.arange(5.0), False
    expected = 1.0 - float((whole - values)[valid].var() / whole[valid].var())
    assert float(explained_variance(values, whole, valid, Group())) == pytest.approx(expected)

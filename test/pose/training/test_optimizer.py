"""The optimiser of pose networks: steps on views of matrices update the parameters."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from vdl_ros.pose.training.optimizer import PoseOptimizer


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as threads:
        yield threads


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 4, 3)
        self.inner = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
        self.wide = nn.Linear(600, 700)
        self.hidden = nn.Linear(6, 8)
        self.head = nn.Linear(8, 2)


def gradients(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(each.shape, generator=generator) for each in model.parameters()]


def step(model, optimizer, pool, lr=0.1, longest=1e9, seed=1):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer.step(gradients(model, seed), lr, longest, pool)
    return {name: before[name] - value for name, value in model.state_dict().items()}


def test_updates_of_kernels_are_orthogonal(pool):
    model = Small()
    moved = step(model, PoseOptimizer(model, 0.0), pool)
    for name in ('inner.weight', 'hidden.weight'):
        sizes = torch.linalg.svdvals(moved[name].flatten(1))
        assert sizes.max() < 2.0 * sizes.min(), name
        given = dict(zip(moved, gradients(model), strict=True))[name]
        assert (moved[name] * given).sum() > 0.0
    # AdamW's first step is the learning rate for each number.
    for name in ('first.weight', 'first.bias', 'wide.weight', 'head.weight', 'inner.bias'):
        torch.testing.assert_close(moved[name].abs(), torch.full_like(moved[name], 0.1),
                                   rtol=1e-2, atol=0)


@pytest.mark.parametrize('shape', [(6, 20), (20, 6)], ids=str)
def test_float32_and_bfloat16_take_equal_steps(pool, shape):
    torch.manual_seed(2)
    weights = torch.randn(shape)
    moved, states = [], []
    for bfloat16 in (True, False):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(shape[1], shape[0]), nn.Linear(2, 2))
        model[1].weight.data.copy_(weights)
        optimizer = PoseOptimizer(model, 0.1, bfloat16=bfloat16)
        for seed in (1, 2, 3):
            step(model, optimizer, pool, seed=seed)
        moved.append(weights - model[1].weight.detach())
        states.append(optimizer.state_dict()['muon'][0]['state'][0]['momentum_buffer'])
    torch.testing.assert_close(*states)
    assert moved[0].norm() > 1.0
    assert (moved[0] - moved[1]).norm() < 0.02 * moved[0].norm()

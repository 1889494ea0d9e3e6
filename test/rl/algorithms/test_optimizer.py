"""Steps of the optimiser: as large as they should be, and none towards what is not finite."""

import copy
import dataclasses

import pytest
import torch
from torch import nn

from vdl_ros.rl.algorithms.algorithm import PolicyOptimizer
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.settings import TrainConfig

CONFIG = TrainConfig(total_steps=1000, learning_rate=0.01)


class Two(nn.Module):
    """A network of two parameters, and one that is not learned."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.second = nn.Parameter(torch.tensor([3.0]))
        self.fixed = nn.Parameter(torch.tensor([7.0]), requires_grad=False)

    def loss(self):
        return self.first.square().sum() + self.second.square().sum() + self.fixed.sum()


def make(**changed):
    network = Two()
    return network, PolicyOptimizer(network, dataclasses.replace(CONFIG, **changed), Group())


def test_steps_are_those_of_the_configured_torch_optimizer():
    for settings, reference in (
            ({'optimizer': 'adam'}, lambda each: torch.optim.Adam(each, 0.01, eps=1e-5)),
            ({'optimizer': 'rmsprop'},
             lambda each: torch.optim.RMSprop(each, 0.01, alpha=0.99, eps=0.01)),
            ({'optimizer': 'rmsprop', 'rmsprop_epsilon': 0.5},
             lambda each: torch.optim.RMSprop(each, 0.01, alpha=0.99, eps=0.5))):
        network, optimizer = make(**settings, max_grad_norm=1e6)
        other = Two()
        torch_optimizer = reference([other.first, other.second])
        for _ in range(3):
            optimizer.step(network.loss(), {})
            torch_optimizer.zero_grad()
            other.loss().backward()
            torch_optimizer.step()
        assert torch.equal(network.first, other.first), settings
        assert torch.equal(network.second, other.second), settings
        assert optimizer.steps == 3
        assert float(network.fixed.detach()) == 7.0


def test_only_a_long_gradient_is_scaled_down():
    length = 2 * (1 + 4 + 9) ** 0.5
    for most, factor in ((0.5, 0.5 / length), (8.0, 1.0)):
        network, optimizer = make(max_grad_norm=most)
        assert optimizer.step(network.loss(), {}) == {'losses/grad_norm': pytest.approx(length)}
        gradient = torch.cat([network.first.grad, network.second.grad])
        torch.testing.assert_close(gradient, torch.tensor([2.0, 4.0, 6.0]) * factor)


def test_a_linear_schedule_falls_to_nothing_and_no_further():
    network, optimizer = make(learning_rate_schedule='linear')
    assert optimizer.learning_rate == 0.01
    for steps, left in ((0, 1.0), (250, 0.75), (999, 0.001), (1000, 0.0), (1001, 0.0)):
        optimizer.schedule(steps)
        assert optimizer.learning_rate == pytest.approx(0.01 * left)
        optimizer.step(network.loss(), {})
        assert optimizer.state()['param_groups'][0]['lr'] == optimizer.learning_rate
    _, constant = make()
    constant.schedule(999)
    assert constant.learning_rate == 0.01


def test_what_is_not_finite_is_named_and_changes_nothing(same):
    network, optimizer = make()
    optimizer.step(network.loss(), {})

    def state():
        return copy.deepcopy((network.state_dict(), optimizer.state(), optimizer.steps))

    before, nan = state(), torch.tensor(float('nan'))
    parts = {'losses/policy_loss': torch.tensor(1.0), 'losses/value_loss': nan, 'losses/loss': nan}
    with pytest.raises(FloatingPointError, match='^losses/value_loss, losses/loss not finite$'):
        optimizer.step(network.loss() * nan, parts)
    assert same(state(), before)
    for poison in (float('nan'), float('inf')):
        hook = network.second.register_hook(lambda gradient, poison=poison: gradient * poison)
        with pytest.raises(FloatingPointError, match='^the gradient of second is not finite$'):
            optimizer.step(network.loss(), {})
        assert same(state(), before), poison
        hook.remove()
    optimizer.step(network.loss(), {})
    assert torch.isfinite(network.second).all()

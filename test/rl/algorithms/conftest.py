"""What the tests of algorithms share: the smallest policies, and gradients by differences."""

import numpy as np
import pytest
import torch
from torch import nn

from vdl_ros.rl.algorithms import make_algorithm
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.distributions import Categorical, EpsilonGreedy
from vdl_ros.rl.policy.policy import Output, make_policy
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config


class Linear(nn.Module):
    """A policy that is one layer in float64: logits and a value, or values and epsilon."""

    normalizer = None
    state_size = 0

    def __init__(self, distribution):
        super().__init__()
        torch.manual_seed(0)
        self.distribution = distribution
        self.of_values = isinstance(distribution, EpsilonGreedy)
        self.layer = nn.Linear(3, 4 if self.of_values else distribution.size + 1,
                               dtype=torch.float64)

    def initial_state(self, batch):
        return torch.zeros(batch, 0)

    def forward(self, observations, is_reset=None, state=None, *_):
        out = self.layer(observations.double())
        if self.of_values:
            return Output(torch.cat([out, torch.zeros_like(out[..., :1])], -1), out.amax(-1),
                          state)
        return Output(out[..., :-1], out[..., -1], state)


@pytest.fixture
def linear():
    """Return a function that makes the policy of a family."""
    return lambda distribution=None: Linear(distribution or Categorical(4))


@pytest.fixture
def schema(spaces):
    return UnrollSchema(*spaces, 8, 1)


@pytest.fixture
def batch(random_unroll, schema):
    """Nine columns of eight steps, with ends of both kinds and steps that do not count."""
    made = make_batch([random_unroll(seed) for seed in range(3)], schema)
    assert not made.valid.all()
    assert made.terminated.any()
    assert made.truncated.any()
    return made


@pytest.fixture
def algorithm(schema):
    """Return a function that makes the algorithm of a config, with settings of its own."""
    def make(policy, config, group=None, schema=schema, **options):
        return make_algorithm(
            policy, config, make_algorithm_config(config, options), schema, group)
    return make


@pytest.fixture
def real(spaces, algorithm):
    """Return a function that makes an algorithm with the policy that its settings ask for."""
    def make(config, group=None, **options):
        torch.manual_seed(config.seed)
        policy = make_policy(config, *spaces, make_algorithm_config(config, options))
        schema = UnrollSchema(*spaces, config.unroll_length, 1, policy.state_size)
        return algorithm(policy, config, group, schema, **options)
    return make


@pytest.fixture
def config():
    """Return a function that makes settings; none of those that matter is a neutral number."""
    def make(name, **changes):
        return TrainConfig(algorithm=name, **{
            'unroll_length': 8, 'hidden_size': 8, 'discount': 0.9, 'gae_lambda': 0.8,
            'baseline_cost': 0.4, 'entropy_cost': 0.03, **changes})
    return make


@pytest.fixture
def log_probs():
    """Return a function: log-probabilities [..., n] of a policy's logits, values beside them."""
    def compute(policy, observations):
        parameters, values, _ = policy(observations)
        parameters = parameters.detach().numpy()
        return (parameters - np.log(np.exp(parameters).sum(-1, keepdims=True)),
                values.detach().numpy())
    return compute


@pytest.fixture
def check_gradient():
    """Return a function: assert that ``loss`` is what ``definition`` returns, and so its gradient.

    ``definition`` computes the loss anew from the policy's parameters as they are.
    """
    def check(policy, loss, definition):
        policy.zero_grad()
        loss.backward()
        assert float(loss.detach()) == pytest.approx(definition(), rel=1e-6)
        largest = 0.0
        for parameter in policy.parameters():
            flat, step = parameter.data.view(-1), 1e-6
            for i in range(len(flat)):
                flat[i] += step
                above = definition()
                flat[i] -= 2 * step
                below = definition()
                flat[i] += step
                found = float(parameter.grad.view(-1)[i])
                assert found == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-7)
                largest = max(largest, abs(found))
        assert largest > 1e-3
    return check


@pytest.fixture
def alike():
    """Return a function: assert that policies or figures are the same but for rounding."""
    def compare(a, b, rtol=2e-4, atol=2e-5):
        a, b = ((each.state_dict() if isinstance(each, nn.Module) else each) for each in (a, b))
        assert a.keys() == b.keys()
        for name in a:
            torch.testing.assert_close(
                torch.as_tensor(a[name]), torch.as_tensor(b[name]), rtol=rtol, atol=atol,
                msg=lambda message, name=name: f'{name}: {message}')
    return compare

"""What the tests of algorithms share: the smallest policies, and gradients by differences."""

import dataclasses

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
def linear_values():
    return lambda: Linear(EpsilonGreedy(4))


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
def table():
    """
    Return a function: n-step returns of a batch by the letter.

    Of each valid step (b, t) the sum of n rewards, the bootstrap's factor and time.
    """
    def compute(batch, n, discount=0.9):
        rows = {}
        for t, b in np.argwhere(batch.valid.numpy()):
            total, k = 0.0, 0
            while True:
                total += discount**k * float(batch.rewards[t + k, b])
                k += 1
                ended = bool(batch.terminated[t + k - 1, b])
                if ended or bool(batch.truncated[t + k - 1, b]) or k == n or t + k == 8:
                    break
            rows[b, t] = total, 0.0 if ended else discount**k, t + k
        return rows
    return compute


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
    """
    Return a function: assert that ``loss`` is what ``definition`` returns, and so its gradient.

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
def ignored_changed():
    """Return a function: the batch with all else in the steps that do not count."""
    def change(batch):
        ignored = ~batch.valid
        changed = {
            'actions': torch.where(ignored, 3 - batch.actions, batch.actions),
            'rewards': torch.where(ignored, batch.rewards - 50.0, batch.rewards),
            'behaviour_log_probs': torch.where(ignored, -9.0, batch.behaviour_log_probs),
            'terminated': batch.terminated ^ ignored}
        return type(batch)(**{**vars(batch), **changed})
    return change


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


@pytest.fixture
def together(pair, real, alike, random_unroll, spaces):
    """
    Return a function: assert that two learners of a group do what one does with both batches.

    Steps are nearly those of plain optimizer, as Adam makes much of the smallest difference.
    """
    def check(config, updates=2, **options):
        config = dataclasses.replace(
            config, optimizer='rmsprop', rmsprop_epsilon=1.0, learning_rate=0.3)
        alone = real(config, **options)
        schema = UnrollSchema(*spaces, config.unroll_length, 1, alone.policy.state_size)

        def unroll(rank, n):
            return random_unroll(10 * n + rank, batch=3 - rank, start_id=rank, sequence=n,
                                 state_size=schema.state_size)

        parts = [[make_batch([unroll(rank, n)], schema) for n in range(updates)]
                 for rank in range(2)]
        whole = [make_batch([unroll(0, n), unroll(1, n)], schema) for n in range(updates)]
        assert parts[0][0].valid.sum() != parts[1][0].valid.sum()
        before = {name: each.clone() for name, each in alone.policy.state_dict().items()}
        members = [real(config, **options) for _ in range(2)]

        def learn(rank):
            def run(group):
                member = members[rank]
                member.group = member.optimizer.group = group
                return [member.update(batch) for batch in parts[rank]]
            return run

        expected = [alone.update(batch) for batch in whole]
        found = pair(learn(0), learn(1))
        for told in found:
            for figures, single in zip(told, expected, strict=True):
                alike(figures, single)
        for member in members:
            alike(member.policy, alone.policy)
        assert any(not torch.allclose(each, before[name], atol=1e-3)
                   for name, each in alone.policy.state_dict().items())
        return alone, members
    return check

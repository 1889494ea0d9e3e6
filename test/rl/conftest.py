"""What the tests of learning share: unrolls made by hand, and V-trace by the letter."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.rl.unroll import Unroll

# More cost more time than they save on nets this small.
torch.set_num_threads(1)

# Steps of an episode of scripted unrolls, with the one that the environment ignores.
CYCLE = 6


def _naive_vtrace(log_rhos, discounts, rewards, values, valid, rho_bar, c_bar):
    """
    Return (v_s, advantages) as in arXiv:1802.01561, equation (1), sums and products as they stand.

    v_s = V(x_s) + sum_t gamma^(t-s) (prod_{i=s}^{t-1} c_i) delta_t V. A step that is not valid is
    none of the trajectory: what comes before it ends there, and it has no correction of its own.
    """
    steps, batch = rewards.shape
    vs = np.array(values, np.float64)
    for b in range(batch):
        for s in range(steps):
            total = 0.0
            for t in range(s, steps):
                if not valid[t, b]:
                    break
                rho_t = min(rho_bar, np.exp(log_rhos[t, b]))
                delta = rho_t * (
                    rewards[t, b] + discounts[t, b] * values[t + 1, b] - values[t, b])
                product = 1.0
                for i in range(s, t):
                    product *= discounts[i, b] * min(c_bar, np.exp(log_rhos[i, b]))
                total += product * delta
            vs[s, b] = values[s, b] + total
    advantages = np.zeros((steps, batch))
    for b in range(batch):
        for s in range(steps):
            if valid[s, b]:
                rho_s = min(rho_bar, np.exp(log_rhos[s, b]))
                advantages[s, b] = rho_s * (
                    rewards[s, b] + discounts[s, b] * vs[s + 1, b] - values[s, b])
    return vs[:-1], advantages


@pytest.fixture
def naive_vtrace():
    return _naive_vtrace


@pytest.fixture
def spaces():
    """Observations of three numbers, four actions."""
    return gymnasium.spaces.Box(-10, 10, (3,), np.float32), gymnasium.spaces.Discrete(4)


@pytest.fixture
def random_unroll():
    """Return a function that draws a valid unroll for ``spaces``, with ends and resets."""
    def draw(seed, steps=8, batch=3, sequence=0, actor_id='a', incarnation=1, version=0):
        rng = np.random.default_rng(seed)
        done = rng.random((steps, batch)) < 0.25
        is_reset = np.zeros((steps + 1, batch), np.bool_)
        for t in range(1, steps):
            # The step after the last one of an episode only resets, and ends nothing.
            is_reset[t + 1] = done[t - 1]
            done[t] &= ~is_reset[t + 1]
        by_task = rng.random((steps, batch)) < 0.5
        arrays = {
            'observations': rng.normal(size=(steps + 1, batch, 3)).astype(np.float32),
            'is_reset': is_reset,
            'actions': rng.integers(0, 4, (steps, batch)),
            'rewards': rng.normal(size=(steps, batch)).astype(np.float32),
            'terminated': done & by_task,
            'truncated': done & ~by_task,
            'behaviour_log_probs': np.log(
                rng.uniform(0.1, 0.6, (steps, batch))).astype(np.float32),
        }
        return Unroll(arrays, actor_id, incarnation, sequence, version)
    return draw


class Scripted:
    """
    An inbox whose episodes all have five steps of reward 1, the fifth terminated.

    ``poison`` is the number of the unroll from which rewards are too large for a loss; ``on_get``
    is called with this inbox at each ``get``.
    """

    def __init__(self, ledger, steps=8, batch=2, poison=None, on_get=None):
        self.ledger, self.steps, self.batch = ledger, steps, batch
        self.poison, self.on_get = poison, on_get
        self.sequence, self.clock = 0, 0

    def get(self, timeout):
        if self.on_get is not None:
            self.on_get(self)
        steps, batch = self.steps, self.batch
        time = (self.clock + np.arange(steps + 1)) % CYCLE
        self.clock += steps
        is_reset = np.repeat((time == 0)[:, None], batch, 1)
        rewards = np.repeat((time[1:] != 0)[:, None], batch, 1).astype(np.float32)
        if self.poison is not None and self.sequence >= self.poison:
            rewards[:] = 1e30
        ended = np.repeat((time[1:] == CYCLE - 1)[:, None], batch, 1)
        arrays = {
            'observations': np.repeat(
                np.eye(CYCLE, 3, dtype=np.float32)[time][:, None], batch, 1),
            'is_reset': is_reset,
            'actions': np.zeros((steps, batch), np.int64),
            'rewards': rewards,
            'terminated': ended,
            'truncated': np.zeros((steps, batch), np.bool_),
            'behaviour_log_probs': np.full((steps, batch), np.log(0.25), np.float32),
        }
        self.ledger.arrive('a', 1, self.sequence)
        self.sequence += 1
        return Unroll(arrays, 'a', 1, self.sequence - 1, 0, 0.001 * self.sequence, num_bytes=100)


@pytest.fixture
def scripted():
    return Scripted


@pytest.fixture
def same():
    """Return a function: whether two nested structures of tensors are the same, bit by bit."""
    def compare(a, b):
        if isinstance(a, torch.Tensor):
            return torch.equal(a, b)
        if isinstance(a, np.ndarray):
            return a.dtype == b.dtype and np.array_equal(a, b)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(compare(a[key], b[key]) for key in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(compare, a, b))
        return a == b
    return compare

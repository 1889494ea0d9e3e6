"""Batches: concatenation of unrolls, valid steps, transformation of rewards."""

import numpy as np
import pytest
import torch

from vdl_ros.rl.data.batch import Source, make_batch, transform_rewards
from vdl_ros.rl.data.unroll import UnrollSchema

ARRAYS = ('observations', 'actions', 'rewards', 'terminated', 'truncated', 'is_reset',
          'behaviour_log_probs')


def batch_of(unrolls, spaces, state_size=0):
    return make_batch(unrolls, UnrollSchema(*spaces, 8, 1, state_size))


def test_unrolls_are_concatenated_along_the_batch_axis(spaces, random_unroll):
    unrolls = [random_unroll(0, batch=2), random_unroll(1, batch=1), random_unroll(2, batch=3)]
    batch = batch_of(unrolls, spaces)
    for name in ARRAYS:
        expected = np.concatenate([unroll.arrays[name] for unroll in unrolls], 1)
        found = getattr(batch, name).numpy()
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected), name
    resets = np.concatenate([unroll.arrays['is_reset'] for unroll in unrolls], 1)
    assert np.array_equal(batch.valid.numpy(), ~resets[1:])
    assert not batch.valid.all()


def test_states_are_concatenated(spaces, random_unroll):
    unrolls = [random_unroll(seed, batch=seed + 1, state_size=4) for seed in range(3)]
    expected = np.concatenate([unroll.arrays['state'] for unroll in unrolls])
    assert np.array_equal(batch_of(unrolls, spaces, 4).state.numpy(), expected)
    plain = [random_unroll(seed, batch=seed + 1) for seed in range(3)]
    assert batch_of(plain, spaces).state.shape == (1 + 2 + 3, 0)


def test_sources_name_the_unroll_of_each_column(spaces, random_unroll):
    unrolls = [random_unroll(0, batch=2, start_id=2**63, sequence=5),
               random_unroll(1, batch=1, start_id=9, sequence=0)]
    assert batch_of(unrolls, spaces).sources == (Source(2**63, 5, 2), Source(9, 0, 1))


def test_columns_can_be_selected(spaces, random_unroll):
    batch = batch_of([random_unroll(seed, state_size=2) for seed in range(2)], spaces, 2)
    index = torch.tensor([4, 0, 4])
    part = batch.columns(index)
    for name in ARRAYS:
        assert torch.equal(getattr(part, name), getattr(batch, name)[:, [4, 0, 4]]), name
    assert torch.equal(part.state, batch.state[[4, 0, 4]])
    assert torch.equal(part.valid, batch.valid[:, [4, 0, 4]])
    assert part.sources == ()


@pytest.mark.parametrize(('how', 'expected'), [
    ('none', [-10.0, -0.5, 0.0, 0.5, 10.0]),
    ('abs_one', [-1.0, -0.5, 0.0, 0.5, 1.0]),
    ('soft_asymmetric', [-1.5 * np.tanh(2), -1.5 * np.tanh(0.1), 0.0, 5 * np.tanh(0.1),
                         5 * np.tanh(2)]),
])
def test_rewards_are_transformed(how, expected):
    rewards = torch.tensor([-10.0, -0.5, 0.0, 0.5, 10.0])
    assert transform_rewards(rewards, how).tolist() == pytest.approx(expected)

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
    unrolls = [random_unroll(0, batch=2, start_id=2**63, sequence=5, state_size=4),
               random_unroll(1, batch=1, start_id=9, state_size=4)]
    batch = batch_of(unrolls, spaces, 4)
    assert batch.sources == (Source(2**63, 5, 2), Source(9, 0, 1))
    expected = np.concatenate([unroll.arrays['state'] for unroll in unrolls])
    assert np.array_equal(batch.state.numpy(), expected)
    assert batch_of([random_unroll(0)], spaces).state.shape == (3, 0)
    for name in ARRAYS:
        expected = np.concatenate([unroll.arrays[name] for unroll in unrolls], 1)
        found = getattr(batch, name).numpy()
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected), name
    resets = np.concatenate([unroll.arrays['is_reset'] for unroll in unrolls], 1)
    assert np.array_equal(batch.valid.numpy(), ~resets[1:])
    assert not batch.valid.all()


def test_rewards_are_transformed():
    rewards = torch.tensor([-10.0, -0.5, 0.0, 0.5, 10.0])
    for how, expected in (
            ('none', [-10.0, -0.5, 0.0, 0.5, 10.0]), ('abs_one', [-1.0, -0.5, 0.0, 0.5, 1.0]),
            ('soft_asymmetric', [-1.5 * np.tanh(2), -1.5 * np.tanh(0.1), 0.0, 5 * np.tanh(0.1),
                                 5 * np.tanh(2)])):
        assert transform_rewards(rewards, how).tolist() == pytest.approx(expected), how

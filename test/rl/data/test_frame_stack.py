"""Frame stacks: splitting into frames and stacking again restores every bit."""

import numpy as np
import pytest

from vdl_ros.rl.data.unroll import stack, unstack


def unroll(rng, steps, batch, size, shape, is_reset, black=False):
    """Return observations [steps, batch, size, *shape], one after the other, naively."""
    observations = np.zeros((steps, batch, size, *shape), np.uint8)
    for b in range(batch):
        current = rng.integers(0, 256, (size, *shape), np.uint8)
        for t in range(steps):
            if is_reset[t, b]:
                current = rng.integers(0, 256, (size, *shape), np.uint8)
                if black:
                    current[:-1] = 0
            elif t:
                new = rng.integers(0, 256, (1, *shape), np.uint8)
                current = np.concatenate([current[1:], new])
            observations[t, b] = current
    return observations


def test_stacks_are_restored_for_any_pattern_of_resets():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        steps, batch, size = rng.integers(1, 12), rng.integers(1, 5), rng.integers(1, 6)
        shape = tuple(rng.integers(1, 4, 2))
        is_reset = rng.random((steps, batch)) < rng.choice([0.0, 0.1, 0.5, 1.0])
        observations = unroll(rng, steps, batch, size, shape, is_reset, black=bool(seed % 2))
        frames, positions, stacks = unstack(observations, is_reset)
        assert frames.shape == (steps + size - 1, batch, *shape), seed
        assert positions.shape == (is_reset[1:].sum(), 2), seed
        assert positions.dtype == np.int32
        assert stacks.shape == (len(positions), size, *shape), seed
        restored = np.empty_like(observations)
        stack(frames, positions, stacks, restored)
        assert np.array_equal(restored, observations), seed


def test_observation_that_does_not_continue_must_be_marked():
    observations = unroll(
        np.random.default_rng(0), 6, 2, 4, (3, 3), np.zeros((6, 2), bool))
    observations[3, 1, 0, 0, 0] ^= 1
    with pytest.raises(ValueError, match='number 3 of environment 1 does not continue'):
        unstack(observations, np.zeros((6, 2), bool))

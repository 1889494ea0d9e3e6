"""Frame stacks: splitting into frames and stacking again restores every bit."""

import re

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
        restored = stack(frames, positions, stacks)
        assert restored.dtype == np.uint8
        assert np.array_equal(restored, observations), seed


def test_out_may_be_a_slice_of_a_batch_and_the_input_read_only():
    rng = np.random.default_rng(0)
    is_reset = rng.random((6, 3)) < 0.3
    observations = unroll(rng, 6, 3, 4, (5, 5), is_reset)
    packed = unstack(observations, is_reset)
    for array in packed:
        array.flags.writeable = False
    batch = np.full((6, 8, 4, 5, 5), 7, np.uint8)
    out = batch[:, 2:5]
    assert stack(*packed, out=out) is out
    assert np.array_equal(batch[:, 2:5], observations)
    assert (batch[:, :2] == 7).all()
    assert (batch[:, 5:] == 7).all()


def test_observation_that_does_not_continue_must_be_marked():
    observations = unroll(
        np.random.default_rng(0), 6, 2, 4, (3, 3), np.zeros((6, 2), bool))
    observations[3, 1, 0, 0, 0] ^= 1
    with pytest.raises(ValueError, match='number 3 of environment 1 does not continue'):
        unstack(observations, np.zeros((6, 2), bool))


def refused(function, good, cases):
    for change, message in cases:
        try:
            function(**{**good, **change})
            found = 'accepted'
        except ValueError as error:
            found = str(error)
        assert re.match(message, found), (change, message, found)


def test_wrong_observations_are_refused():
    good = {'observations': np.zeros((2, 2, 4, 3, 3), np.uint8),
            'is_reset': np.zeros((2, 2), bool)}
    unstack(**good)
    refused(unstack, good, [
        ({'observations': np.zeros((2, 2, 4, 3), np.uint8)}, 'observations: uint8 with 4 axes'),
        ({'observations': np.zeros((2, 2, 4, 3, 3), np.float32)}, 'observations: float32'),
        ({'observations': np.zeros((0, 2, 4, 3, 3), np.uint8)}, 'observations: .* no observation'),
        ({'is_reset': np.zeros((3, 2), bool)}, 'is_reset: shape'),
        ({'is_reset': np.zeros((2, 2), np.uint8)}, 'is_reset: uint8')])


def test_invalid_encoded_frames_are_rejected():
    def at(*rows):
        return {'positions': np.array(rows, np.int32)}

    def frames(*shape, dtype=np.uint8):
        return {'frames': np.zeros(shape, dtype)}

    def stacks(*shape, dtype=np.uint8):
        return {'reset_stacks': np.zeros(shape, dtype)}

    good = {**frames(8, 2, 3, 3), **at((1, 0), (4, 1)), **stacks(2, 4, 3, 3)}
    assert stack(**good).shape == (5, 2, 4, 3, 3)
    refused(stack, good, [
        ({'frames': b'abc'}, 'frames: bytes'),
        (frames(8, 2, 3, 3, dtype=np.int8), 'frames: int8'),
        (frames(8, 2, 9), 'frames: uint8 with 3 axes'),
        (frames(8, 2, 3, 4), 'frames: .* does not fit'),
        (frames(3, 2, 3, 3), 'frames: .* does not fit'),
        (frames(0, 2, 3, 3), 'frames: .* does not fit'),
        (frames(8, 0, 3, 3), 'positions: .* not within'),
        (stacks(2, 0, 3, 3), 'frames: .* does not fit'),
        (stacks(1, 4, 3, 3), 'positions: shape'),
        (stacks(2, 4, 3, 3, dtype=np.uint16), 'reset_stacks: uint16'),
        ({'positions': np.zeros((2, 2), np.int64)}, 'positions: int64'),
        ({'positions': np.zeros((2, 3), np.int32)}, 'positions: shape'),
        (at((0, 0), (1, 0)), 'positions: .* not within'),
        (at((1, -1), (1, 0)), 'positions: .* not within'),
        (at((1, 0), (5, 0)), 'positions: .* not within'),
        (at((1, 0), (1, 2)), 'positions: .* not within'),
        (at((2, 0), (1, 1)), 'positions: not in increasing order'),
        (at((1, 1), (1, 1)), 'positions: not in increasing order'),
        ({'out': np.zeros((5, 2, 4, 3, 4), np.uint8)}, 'out: shape'),
        ({'out': np.zeros((5, 2, 4, 3, 3), np.float32)}, 'out: float32'),
        ({'out': np.broadcast_to(np.uint8(0), (5, 2, 4, 3, 3))}, 'out: is read-only')])

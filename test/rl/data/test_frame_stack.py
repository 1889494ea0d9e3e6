"""Frame stacks: splitting into frames and stacking again restores every bit."""

import re

import numpy as np
import pytest

from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.factory import make
from vdl_ros.rl.data.frame_stack import stack, unstack


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


def naive_stack(frames, positions, reset_stacks, steps):
    """Return the observations by the definition: move by one picture, unless there is a reset."""
    size, batch = reset_stacks.shape[1], frames.shape[1]
    whole = {tuple(at): each for at, each in zip(positions.tolist(), reset_stacks, strict=True)}
    observations = np.zeros((steps, batch, *reset_stacks.shape[1:]), np.uint8)
    for b in range(batch):
        current = frames[:size, b]
        for t in range(steps):
            if t:
                current = np.concatenate([current[1:], frames[None, t + size - 1, b]])
            current = whole.get((t, b), current)
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
        assert np.array_equal(naive_stack(frames, positions, stacks, steps), observations), seed


def test_resets_at_the_edges_and_in_consecutive_steps():
    rng = np.random.default_rng(0)
    for times in ((0,), (0, 1), (1, 2, 3), (2, 4), (2, 5), (8,), (0, 8), (7, 8), range(9)):
        is_reset = np.zeros((9, 3), bool)
        is_reset[list(times), 1] = True
        observations = unroll(rng, 9, 3, 4, (5, 6), is_reset)
        packed = unstack(observations, is_reset)
        assert np.array_equal(stack(*packed), observations), times
        assert len(packed[1]) == sum(each > 0 for each in times), 'none is needed at time 0'


def test_each_frame_is_sent_once():
    observations = np.zeros((21, 16, 4, 84, 84), np.uint8)
    frames, positions, stacks = unstack(observations, np.zeros((21, 16), bool))
    assert (len(positions), len(stacks)) == (0, 0)
    assert frames.nbytes * 84 == observations.nbytes * 24


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


@pytest.mark.slow
def test_unrolls_of_atari_are_restored():
    env = make(EnvConfig(env_id='ALE/Breakout-v5', episodic_life=True), seed=1, num_envs=4)
    rng = np.random.default_rng(0)
    observation, _ = env.reset()
    observations, is_reset = [observation], [np.ones(4, bool)]
    over = np.zeros(4, bool)
    for _ in range(250):
        observation, _, terminated, truncated, _ = env.step(
            rng.integers(0, env.single_action_space.n, 4))
        observations.append(observation)
        is_reset.append(over)
        over = terminated | truncated
    env.close()
    # Unrolls of 20 steps share the observation between them, as an actor's do.
    whole, resets, restored = np.stack(observations), np.stack(is_reset), 0
    for start in range(0, 230, 20):
        part, marks = whole[start:start + 21], resets[start:start + 21]
        frames, positions, stacks = unstack(part, marks)
        assert np.array_equal(stack(frames, positions, stacks), part)
        restored += len(positions)
    assert restored >= 8

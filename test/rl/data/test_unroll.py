"""Unrolls and batches: errors name the array, stacked observations are restored."""

import re

import numpy as np
import pytest
import torch

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.batch import Source, make_batch, transform_rewards
from vdl_ros.rl.data.unroll import Unroll, UnrollError, UnrollSchema, stack, unstack
from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.settings import TrainConfig

STEPS, BATCH = 6, 2


def acted(env_id, lstm_size=0):
    """Return a schema and the arrays of one unroll; the environments are in their episodes."""
    config = EnvConfig(env_id=env_id)
    envs = factory.make(config, 1, num_envs=BATCH)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make_policy(TrainConfig(network='mlp', hidden_size=4, lstm_size=lstm_size), *spaces)
    schema = UnrollSchema(
        *spaces, STEPS, factory.frames_per_observation(config), policy.state_size)
    actor = TorchActor(envs, policy, schema, 1)
    # Until there is a reset within.
    arrays, _ = actor.unroll()
    while not arrays['is_reset'][1:].any():
        arrays, _ = actor.unroll()
    actor.close()
    return schema, arrays


@pytest.fixture(scope='module')
def unrolls():
    """Schemas and valid arrays by what they hold.

    Numbers; stacks of frames; a stack of frames and numbers, with actions of two parts; continuous
    actions; and a policy's state of eight numbers.
    """
    return {'numbers': acted('vdl/Counter-v0'), 'pictures': acted('vdl/PixelCounter-v0'),
            'mixed': acted('vdl/MixedCounter-v0'), 'forces': acted('vdl/Reach1D-v0'),
            'state': acted('vdl/Counter-v0', lstm_size=4)}


def answer(check, given, **changed):
    """Return the refusal of arrays, or of their lengths, with something changed, or 'accepted'."""
    found = 'accepted'
    try:
        check({**given, **changed})
    except UnrollError as error:
        found = str(error)
    assert '\n' not in found
    return found


def lengths_of(arrays):
    return {name: array.nbytes for name, array in arrays.items()}


def test_unrolls_of_an_actor_are_valid_with_any_number_of_environments(unrolls):
    for kind, (schema, arrays) in unrolls.items():
        schema.check(arrays)
        schema.check_lengths(lengths_of(arrays))
        assert Unroll(arrays, 'a', 0, 0, 0).num_envs == BATCH
        assert ('state' in arrays) == (kind == 'state')
        five = {name: np.zeros_like(array) for name, array in schema.empty(5).items()}
        assert five['observations'].shape == (STEPS + 1, 5, *schema.observation_space.shape)
        assert schema.num_bytes(5) == sum(lengths_of(five).values())
        with pytest.raises(UnrollError, match='^unroll_length: 6 steps of 10000000000 environ'):
            schema.empty(10**10)
        if kind in ('numbers', 'forces', 'state'):
            schema.check(five)
            none = {name: array[:0] if name == 'state' else array[:, :0]
                    for name, array in five.items()}
            assert answer(schema.check, none) == 'rewards: holds no environment', kind


def test_missing_arrays_wrong_dtypes_and_wrong_shapes_are_named(unrolls):
    for kind in ('numbers', 'mixed', 'state'):
        schema, arrays = unrolls[kind]
        for name, array in arrays.items():
            rest = {key: value for key, value in arrays.items() if key != name}
            if name != 'success':
                assert answer(schema.check, rest, extra=array) == (
                    f"arrays missing: ['{name}'], unknown: ['extra']")
            wrong = [array[..., None], array.reshape(-1)]
            if name != 'reset_index':
                wrong.append(array[:-1])
            # That of is_reset is the number with which the others are compared.
            if name not in ('is_reset', 'state', 'reset_index', 'reset_stacks'):
                wrong += [np.concatenate([array, array[:1]]), array[:, :0],
                          np.concatenate([array, array], 1)]
            if name in ('frames', 'reset_stacks', 'state'):
                wrong.append(array[..., :-1])
            for each in wrong:
                found = answer(schema.check, arrays, **{name: each})
                assert found.startswith(f'{name}: shape ('), (kind, each.shape, found)
            found = answer(schema.check, arrays, **{name: array.astype(np.float64)})
            assert found.startswith(f'{name}: dtype float64 is'), (kind, found)
            if name not in ('reset_index', 'reset_stacks'):
                lengths = lengths_of(arrays)
                found = answer(schema.check_lengths, lengths, **{name: array.nbytes + 4 * STEPS})
                assert re.match(f'(is_reset|{name}): [0-9]+ bytes are not', found), (kind, found)
    schema, arrays = unrolls['state']
    assert answer(schema.check, arrays, state=arrays['state'][:1]) == (
        'state: shape (1, 8) is not (2, 8)')
    assert answer(unrolls['numbers'][0].check, arrays) == (
        "arrays missing: [], unknown: ['state']")


def test_numbers_that_would_spoil_a_loss_are_named(unrolls):
    infinite, largest = 'not all finite', 'is not allowed: from -1e+09 to 1e+09'
    at = (2, 1)
    for kind, name, index, value, message in (
            *(('forces', name, at, value, infinite)
              for name in ('rewards', 'behaviour_log_probs', 'actions', 'observations')
              for value in (np.nan, np.inf, -np.inf)),
            ('mixed', 'vectors', (2, 1, 3), np.nan, infinite),
            ('state', 'state', (1, 2), np.nan, infinite),
            ('mixed', 'vectors', (2, 1, 3), -2e9, f'-2e+09 {largest}'),
            ('forces', 'rewards', at, -1.1e9, f'-1.1e+09 {largest}'),
            ('forces', 'observations', at, 1e30, f'1e+30 {largest}'),
            ('forces', 'actions', at, 1e7, '1e+07 is not allowed: from -1e+06 to 1e+06'),
            ('forces', 'behaviour_log_probs', at, -1e30,
             '-1e+30 is not allowed: from -1e+06 to 1e+06'),
            ('numbers', 'actions', (3, 1), -1, '-1 to .* is not within 0 to 1'),
            ('numbers', 'actions', (3, 1), 2**62, f'. to {2**62} is not within 0 to 1'),
            ('mixed', 'actions', (3, 1, 0), 2, '. to 2 is not within 0 to 1'),
            ('mixed', 'actions', (3, 1, 1), -1, '-1 to . is not within 0 to 2'),
            ('mixed', 'actions', (3, 1, 1), 3, '. to 3 is not within 0 to 2')):
        schema, arrays = unrolls[kind]
        broken = arrays[name].copy()
        broken[index] = value
        found = answer(schema.check, arrays, **{name: broken})
        expected = message if kind != 'forces' and name == 'actions' else re.escape(message)
        assert re.fullmatch(f'{name}: {expected}', found), (kind, name, value, found)


def test_resets_out_of_range_or_order_are_named(unrolls):
    schema, arrays = unrolls['pictures']
    outside = [(0, 0), (STEPS + 1, 0), (1, -1), (1, BATCH), (-1, 0)]
    for positions, message in (
            *(([each], 'not within') for each in outside),
            ([(2, 0), (1, 0)], 'not in increasing order')):
        found = answer(
            schema.check, arrays, reset_index=np.array(positions, np.int32),
            reset_stacks=np.repeat(arrays['reset_stacks'][:1], len(positions), 0))
        assert found.startswith('reset_index: ')
        assert message in found, positions


def test_extras_may_be_absent_and_are_checked(unrolls):
    schema, given = unrolls['mixed']
    over = given['terminated'] | given['truncated']
    assert np.array_equal(given['success'][over], given['terminated'][over])
    extras = {'success': given['success'], 'late_actions': np.zeros((STEPS, BATCH), np.int32),
              'reaction_time': np.zeros((STEPS, BATCH, 4), np.float32)}
    rest = {name: array for name, array in given.items() if name != 'success'}
    for arrays in (rest, rest | extras):
        schema.check(arrays)
        schema.check_lengths(lengths_of(arrays))
    for name, extra in extras.items():
        for wrong in (extra[:-1], extra[:, :1], extra.astype(np.float64)):
            assert answer(schema.check, arrays, **{name: wrong}).startswith(f'{name}: '), name
    assert answer(schema.check_lengths, lengths_of(arrays), success=11) == (
        'success: 11 bytes are not the 12 of 2 environments')
    endless = np.full((STEPS, BATCH, 4), np.inf, np.float32)
    assert answer(schema.check, arrays, reaction_time=endless) == 'reaction_time: not all finite'


def test_each_frame_is_sent_once_and_numbers_beside_it_as_an_array_of_their_own(unrolls):
    assert unrolls['pictures'][1]['frames'].shape == (STEPS + 4, BATCH, 8, 8)
    found = {name: (array.shape[2:], str(array.dtype))
             for name, array in unrolls['mixed'][1].items()}
    assert found['frames'] == ((36, 36), 'uint8')
    assert found['vectors'] == ((8,), 'float32')
    assert 'observations' not in found


def stacked(rng, steps, batch, size, shape, is_reset, black=False):
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
        observations = stacked(rng, steps, batch, size, shape, is_reset, black=bool(seed % 2))
        frames, positions, stacks = unstack(observations, is_reset)
        assert frames.shape == (steps + size - 1, batch, *shape), seed
        assert positions.shape == (is_reset[1:].sum(), 2), seed
        assert positions.dtype == np.int32
        assert stacks.shape == (len(positions), size, *shape), seed
        restored = np.empty_like(observations)
        stack(frames, positions, stacks, restored)
        assert np.array_equal(restored, observations), seed


def test_observation_that_does_not_continue_must_be_marked():
    observations = stacked(np.random.default_rng(0), 6, 2, 4, (3, 3), np.zeros((6, 2), bool))
    observations[3, 1, 0, 0, 0] ^= 1
    with pytest.raises(ValueError, match='number 3 of environment 1 does not continue'):
        unstack(observations, np.zeros((6, 2), bool))


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
            ('none', [-10.0, -0.5, 0.0, 0.5, 10.0]), ('abs_one', [-1.0, -0.5, 0.0, 0.5, 1.0])):
        assert transform_rewards(rewards, how).tolist() == pytest.approx(expected), how

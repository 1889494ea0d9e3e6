"""Unroll schema: errors name the array, and stacked observations are restored."""

import gymnasium
import numpy as np
import pytest

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.unroll import Unroll, UnrollError, UnrollSchema
from vdl_ros.rl.policy.factory import make_policy
from vdl_ros.rl.train_config import TrainConfig

STEPS, BATCH = 6, 2


def acted(env_id, lstm_size=0):
    """Return a schema and the arrays of one unroll; the environments are in their episodes."""
    config = EnvConfig(env_id=env_id)
    envs = factory.make(config, 1, num_envs=BATCH)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = make_policy(
        TrainConfig(network='mlp', hidden_size=4, lstm_size=lstm_size), *spaces)
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
def numbers():
    return acted('vdl/Counter-v0')


@pytest.fixture(scope='module')
def pictures():
    return acted('vdl/PixelCounter-v0')


@pytest.fixture(scope='module')
def mixed():
    """A stack of frames and numbers, and actions of two parts."""
    return acted('vdl/MixedCounter-v0')


@pytest.fixture(scope='module')
def forces():
    return acted('vdl/Reach1D-v0')


@pytest.fixture(scope='module')
def remembered():
    """Of a policy with an LSTM of four cells: a state of eight numbers."""
    return acted('vdl/Counter-v0', lstm_size=4)


@pytest.mark.parametrize('lstm_size', [0, 4])
@pytest.mark.parametrize('env_id', [
    'vdl/Counter-v0', 'vdl/PixelCounter-v0', 'vdl/MixedCounter-v0', 'vdl/Reach1D-v0'])
def test_unrolls_of_an_actor_are_valid(env_id, lstm_size):
    schema, arrays = acted(env_id, lstm_size)
    schema.check(arrays)
    assert Unroll(arrays, 'a', 0, 0, 0).num_envs == BATCH
    assert ('state' in arrays) == bool(lstm_size)


NAMES = ['observations', 'is_reset', 'actions', 'rewards', 'terminated', 'truncated',
         'behaviour_log_probs']
PICTURE_NAMES = [*NAMES[1:], 'frames', 'reset_index', 'reset_stacks']
MIXED_NAMES = [*PICTURE_NAMES, 'vectors']


def refused(schema, arrays, name, **changed):
    """Return the message of the error about ``arrays`` with something changed."""
    with pytest.raises(UnrollError, match=rf'^{name}: [^\n]*$') as error:
        schema.check({**arrays, **changed})
    return str(error.value)


@pytest.mark.parametrize('name', NAMES)
def test_missing_and_unknown_arrays_are_named(numbers, name):
    schema, arrays = numbers
    rest = {key: value for key, value in arrays.items() if key != name}
    with pytest.raises(UnrollError, match=rf"missing: \['{name}'\], unknown: \['extra'\]"):
        schema.check({**rest, 'extra': arrays[name]})


@pytest.mark.parametrize('name', NAMES)
def test_a_wrong_dtype_is_named(numbers, name):
    schema, arrays = numbers
    wrong = arrays[name].astype(np.float64)
    assert 'dtype float64 is not' in refused(schema, arrays, name, **{name: wrong})


@pytest.mark.parametrize('change', [
    lambda array: array[:-1], lambda array: np.concatenate([array, array[:1]]),
    lambda array: array[..., None], lambda array: array.reshape(-1), lambda array: array[:, :0],
    lambda array: np.concatenate([array, array], 1)],
    ids=['short', 'long', 'deep', 'flat', 'no environment', 'more environments'])
@pytest.mark.parametrize('name', [name for name in NAMES if name != 'is_reset'])
def test_a_wrong_shape_is_named(numbers, name, change):
    schema, arrays = numbers
    assert 'is not (' in refused(schema, arrays, name, **{name: change(arrays[name])})


@pytest.mark.parametrize('name', PICTURE_NAMES)
def test_wrong_shapes_of_pictures_are_named(pictures, name):
    schema, arrays = pictures
    refused(schema, arrays, name, **{name: arrays[name][..., None]})
    if name in ('frames', 'reset_stacks'):
        refused(schema, arrays, name, **{name: arrays[name][..., :-1]})


def test_an_image_and_numbers_are_sent_as_arrays_of_their_own(mixed):
    schema, arrays = mixed
    assert arrays.keys() == {*MIXED_NAMES, 'success'}
    assert arrays['vectors'].shape == (STEPS + 1, BATCH, 8)
    assert arrays['vectors'].dtype == np.float32
    assert arrays['frames'].shape == (STEPS + 4, BATCH, 36, 36)
    assert arrays['actions'].shape == (STEPS, BATCH, 2)
    assert arrays['actions'].dtype == np.int64
    whole = UnrollSchema(schema.observation_space, gymnasium.spaces.Discrete(2), STEPS, 1)
    rows = np.zeros((STEPS + 1, BATCH, *schema.observation_space.shape), np.uint8)
    sent = whole.encode(rows, arrays['is_reset'])
    assert {name: (array.shape, str(array.dtype)) for name, array in sent.items()} == {
        'images': ((STEPS + 1, BATCH, 4, 36, 36), 'uint8'),
        'vectors': ((STEPS + 1, BATCH, 8), 'float32')}


@pytest.mark.parametrize('name', MIXED_NAMES)
def test_wrong_arrays_of_an_image_and_numbers_are_named(mixed, name):
    schema, arrays = mixed
    refused(schema, arrays, name, **{name: arrays[name].astype(np.float64)})
    refused(schema, arrays, name, **{name: arrays[name][..., None]})
    rest = {key: value for key, value in arrays.items() if key != name}
    with pytest.raises(UnrollError, match=rf"missing: \['{name}'\], unknown: \[\]"):
        schema.check(rest)
    lengths = {key: value.nbytes for key, value in arrays.items()}
    schema.check_lengths(lengths)
    if not name.startswith('reset_'):
        with pytest.raises(UnrollError, match=f'^(is_reset|{name}): '):
            schema.check_lengths({**lengths, name: lengths[name] + 4 * STEPS})


def test_success_may_be_absent_and_is_checked(mixed):
    schema, arrays = mixed[0], dict(mixed[1])
    over = arrays['terminated'] | arrays['truncated']
    assert np.array_equal(arrays['success'][over], arrays['terminated'][over])
    assert 'dtype uint8 is not bool' in refused(
        schema, arrays, 'success', success=arrays['success'].view(np.uint8))
    refused(schema, arrays, 'success', success=arrays['success'][:, :1])
    lengths = {name: array.nbytes for name, array in arrays.items()}
    with pytest.raises(UnrollError, match='^success: 11 bytes are not the 12 of 2 environments'):
        schema.check_lengths({**lengths, 'success': 11})
    del arrays['success'], lengths['success']
    schema.check(arrays)
    schema.check_lengths(lengths)


def test_reaction_times_may_be_there_and_are_checked(mixed):
    schema, arrays = mixed[0], dict(mixed[1])
    arrays['reaction_time'] = np.zeros((STEPS, BATCH, 4), np.float32)
    arrays['late_actions'] = np.zeros((STEPS, BATCH), np.int32)
    schema.check(arrays)
    lengths = {name: array.nbytes for name, array in arrays.items()}
    schema.check_lengths(lengths)
    for name in ('reaction_time', 'late_actions'):
        refused(schema, arrays, name, **{name: arrays[name][:-1]})
        refused(schema, arrays, name, **{name: arrays[name].astype(np.float64)})
        with pytest.raises(UnrollError, match=f'^{name}: '):
            schema.check_lengths({**lengths, name: lengths[name] + 4})
    endless = np.full((STEPS, BATCH, 4), np.inf, np.float32)
    assert 'not all finite' in refused(
        schema, arrays, 'reaction_time', reaction_time=endless)


@pytest.mark.parametrize('value', [np.nan, np.inf, -2e9])
def test_numbers_beside_an_image_are_checked(mixed, value):
    schema, arrays = mixed
    vectors = arrays['vectors'].copy()
    vectors[2, 1, 3] = value
    refused(schema, arrays, 'vectors', vectors=vectors)


@pytest.mark.parametrize(('part', 'action', 'most'), [(0, 2, 1), (0, -1, 1), (1, 3, 2)])
def test_an_action_whose_part_is_out_of_range_is_named(mixed, part, action, most):
    schema, arrays = mixed
    actions = arrays['actions'].copy()
    actions[3, 1, part] = action
    assert f'{action}' in refused(schema, arrays, 'actions', actions=actions)
    assert f'is not within 0 to {most}' in refused(schema, arrays, 'actions', actions=actions)


def test_a_flat_is_reset_is_named(numbers):
    schema, arrays = numbers
    assert '(7,) is not (7, -1)' in refused(
        schema, arrays, 'is_reset', is_reset=arrays['is_reset'][:, 0])


def test_the_array_state_is_required_only_with_a_policy_state(numbers, remembered):
    (plain, short), (schema, whole) = numbers, remembered
    with pytest.raises(UnrollError, match=r"missing: \['state'\], unknown: \[\]"):
        schema.check(short)
    with pytest.raises(UnrollError, match=r"missing: \[\], unknown: \['state'\]"):
        plain.check(whole)


@pytest.mark.parametrize(('change', 'reason'), [
    (lambda state: state[:, :-1], 'shape (2, 7) is not (2, 8)'),
    (lambda state: state[:1], 'shape (1, 8) is not (2, 8)'),
    (lambda state: state[..., None], 'shape (2, 8, 1) is not (2, 8)'),
    (lambda state: state.reshape(-1), 'shape (16,) is not (2, 8)'),
    (lambda state: state.astype(np.float64), 'dtype float64 is not float32'),
    (lambda state: state * np.nan, 'not all finite')])
def test_an_error_names_an_invalid_state(remembered, change, reason):
    schema, arrays = remembered
    assert arrays['state'].shape == (BATCH, 8)
    assert refused(schema, arrays, 'state', state=change(arrays['state'])) == f'state: {reason}'


def test_empty_arrays_have_the_shapes_of_an_unroll(numbers, pictures, mixed, remembered):
    for schema, arrays in (numbers, pictures, mixed, remembered):
        empty = schema.empty(5)
        assert empty.keys() == (arrays.keys() | {'observations'}) - {
            'frames', 'reset_index', 'reset_stacks', 'vectors', 'success'}
        for name, array in empty.items():
            if name in arrays:
                axis = 0 if name == 'state' else 1
                assert array.dtype == arrays[name].dtype
                assert array.shape[axis] == 5
                assert np.delete(array.shape, axis).tolist() == np.delete(
                    arrays[name].shape, axis).tolist()
        assert empty['observations'].shape == (STEPS + 1, 5, *schema.observation_space.shape)


def test_as_many_resets_as_stacks(pictures):
    schema, arrays = pictures
    assert len(arrays['reset_index']) >= 1
    refused(schema, arrays, 'reset_stacks', reset_stacks=arrays['reset_stacks'][1:])


def test_an_unroll_of_no_environment_is_refused(numbers, pictures):
    for schema, arrays in (numbers, pictures):
        empty = {name: array if name.startswith('reset_') else array[:, :0]
                 for name, array in arrays.items()}
        with pytest.raises(UnrollError, match='no environment'):
            schema.check(empty)


@pytest.mark.parametrize('action', [-1, 2, 2**62])
def test_an_action_out_of_range_is_named(numbers, action):
    schema, arrays = numbers
    actions = arrays['actions'].copy()
    actions[3, 1] = action
    assert 'is not within 0 to 1' in refused(schema, arrays, 'actions', actions=actions)


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('name', ['rewards', 'behaviour_log_probs', 'actions', 'observations'])
def test_numbers_must_be_finite(forces, name, value):
    schema, arrays = forces
    broken = arrays[name].copy()
    broken[2, 1] = value
    assert 'not all finite' in refused(schema, arrays, name, **{name: broken})


@pytest.mark.parametrize(('name', 'value', 'largest'), [
    ('rewards', 1e30, '1e+09'), ('rewards', -1.1e9, '1e+09'), ('observations', -1e30, '1e+09'),
    ('actions', 1e7, '1e+06'), ('behaviour_log_probs', -1e30, '1e+06')])
def test_numbers_that_would_overflow_in_a_loss_are_named(forces, name, value, largest):
    schema, arrays = forces
    broken = arrays[name].copy()
    broken[2, 1] = value
    assert refused(schema, arrays, name, **{name: broken}) == (
        f'{name}: {broken[2, 1].max():g} is not allowed: from -{largest} to {largest}')


@pytest.mark.parametrize('position', [(0, 0), (STEPS + 1, 0), (1, -1), (1, BATCH), (-1, 0)])
def test_a_reset_out_of_range_is_named(pictures, position):
    schema, arrays = pictures
    index = np.array([position], np.int32)
    broken = {**arrays, 'reset_index': index, 'reset_stacks': arrays['reset_stacks'][:1]}
    with pytest.raises(UnrollError, match=r'^reset_index: [^\n]* is not within'):
        schema.check(broken)


def test_resets_that_are_not_in_order_are_refused(pictures):
    schema, arrays = pictures
    index, stacks = np.array([(2, 0), (1, 0)], np.int32), arrays['reset_stacks'][[0, 0]]
    assert 'not in increasing order' in refused(
        schema, arrays, 'reset_index', reset_index=index, reset_stacks=stacks)


def test_actors_may_differ_in_their_number_of_environments(numbers, remembered):
    for schema, arrays in (numbers, remembered):
        schema.check({name: array[:1] if name == 'state' else array[:, :1]
                      for name, array in arrays.items()})


@pytest.mark.parametrize(('env_id', 'frames'), [
    ('vdl/Counter-v0', 1), ('vdl/PixelCounter-v0', 4), ('vdl/MixedCounter-v0', 4),
    ('vdl/MixedCounter-v0', 1)])
def test_encoding_and_decoding_restores_observations(env_id, frames):
    envs = factory.make(EnvConfig(env_id=env_id), 9, num_envs=3)
    schema = UnrollSchema(
        envs.single_observation_space, envs.single_action_space, 30, frames)
    observation, _ = envs.reset()
    seen, resets, done = [observation], [np.ones(3, np.bool_)], np.zeros(3, np.bool_)
    for _ in range(30):
        observation, _, terminated, truncated, _ = envs.step(
            np.zeros(envs.action_space.shape, np.int64))
        seen.append(observation)
        resets.append(done)
        done = terminated | truncated
    observations, is_reset = np.stack(seen), np.stack(resets)
    assert is_reset[1:].sum() > 3
    # Into a slice of a larger batch, which must stay untouched beside it.
    batch = np.full((31, 5, *observations.shape[2:]), 7, observations.dtype)
    schema.decode_into(schema.encode(observations, is_reset), batch[:, 1:4])
    assert np.array_equal(batch[:, 1:4], observations)
    assert (batch[:, [0, 4]] == 7).all()


def test_each_frame_is_sent_once(pictures):
    _, arrays = pictures
    assert arrays['frames'].shape == (STEPS + 4, BATCH, 8, 8)


def test_observations_must_be_one_array():
    space = gymnasium.spaces.Discrete(2)
    with pytest.raises(ValueError, match=r'^observation space Discrete\(2\) is not supported'):
        UnrollSchema(space, space, 5, 1)


def test_an_unroll_that_fills_the_memory_is_refused(numbers, pictures, mixed):
    for schema, _ in (numbers, pictures, mixed):
        assert schema.num_bytes(3) == sum(value.nbytes for value in schema.empty(3).values())
        with pytest.raises(UnrollError, match='^unroll_length: 6 steps of 10000000000 environ'):
            schema.empty(10**10)

"""Spaces in canonical form: observations and actions agree with what is assembled by hand."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.envs.canonical_spaces import Actions, Observations
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError

IMAGE = spaces.Box(0, 255, (3, 36, 40), np.uint8)
NUMBERS = spaces.Box(-5, 5, (2, 2), np.float64)
PARTS = {
    'numbers': NUMBERS, 'whole numbers': spaces.Box(-9, 9, (3,), np.int16),
    'one number': spaces.Box(-1, 1, (), np.float32), 'one': spaces.Discrete(4),
    'not from zero': spaces.Discrete(3, start=-1),
    'many': spaces.MultiDiscrete([[2, 3], [4, 1]], start=[[0, 5], [-2, 0]]),
    'flags': spaces.MultiBinary((2, 2)),
}
NESTED = spaces.Dict({
    'z': NUMBERS, 'inner': spaces.Tuple((
        spaces.Discrete(3, start=1), spaces.Dict({'many': spaces.MultiDiscrete([2, 3])}))),
    'flags': spaces.MultiBinary(3)})
VECTORS = {**PARTS, 'dictionary': spaces.Dict(PARTS), 'tuple': spaces.Tuple(PARTS.values()),
           'nested': NESTED}


def batched(space, samples):
    """Return samples as a vector environment returns them."""
    return concatenate(space, samples, create_empty_array(space, len(samples)))


def sampled(space, count=5):
    space.seed(3)
    return [space.sample() for _ in range(count)]


def naive(space, sample):
    """Return the numbers of one observation, one part after the other."""
    if isinstance(space, spaces.Dict):
        return [each for name in space for each in naive(space[name], sample[name])]
    if isinstance(space, spaces.Tuple):
        return [each for part, value in zip(space, sample, strict=True)
                for each in naive(part, value)]
    if isinstance(space, spaces.Discrete):
        return [float(space.start + number == sample) for number in range(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [float(start + number == value) for size, start, value in zip(
                    space.nvec.flat, space.start.flat, sample.flat, strict=True)
                for number in range(size)]
    return [float(each) for each in np.asarray(sample).flat]


@pytest.mark.parametrize('name', [name for name in VECTORS if name not in (
    'numbers', 'whole numbers', 'one number')])
def test_numbers_are_one_vector_as_assembled_by_hand(name):
    space = VECTORS[name]
    samples = sampled(space)
    observations = Observations(space)
    found = observations.convert(batched(space, samples))
    assert found.dtype == observations.space.dtype == np.float32
    assert found.shape == (5, *observations.space.shape)
    np.testing.assert_array_equal(found, np.array(
        [naive(space, each) for each in samples], np.float32))
    # Gymnasium flattens in the same order; it does not know of float32.
    np.testing.assert_allclose(found, [spaces.flatten(space, each) for each in samples], rtol=1e-6)
    assert all(observations.space.contains(each) for each in found)


def test_one_observation_spelled_out():
    observation = {'z': np.array([[1.0, 2.0], [3.0, 4.0]]), 'flags': np.array([1, 0, 1], np.int8),
                   'inner': (np.int64(3), {'many': np.array([1, 0])})}
    found = Observations(NESTED).convert(batched(NESTED, [observation]))
    assert found[0].tolist() == [1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize('space', [IMAGE, NUMBERS, PARTS['whole numbers']], ids=str)
def test_a_single_box_stays_as_it_is(space):
    array = batched(space, sampled(space))
    for observations, given in (
            (Observations(space), array), (Observations(spaces.Dict({'only': space})),
                                           {'only': array}),
            (Observations(spaces.Tuple([spaces.Tuple([space])])), ((array,),))):
        assert observations.space is space
        assert observations.convert(given) is array


@pytest.mark.parametrize('kind', ['dictionary', 'tuple'])
def test_an_image_is_beside_the_numbers(kind):
    parts = {'a': spaces.Discrete(3, start=2), 'camera': IMAGE, 'pose': NUMBERS}
    space = spaces.Dict(parts) if kind == 'dictionary' else spaces.Tuple(parts.values())
    samples = sampled(space)
    observations = Observations(space)
    assert isinstance(observations.space, ImageAndVector)
    images, vectors = observations.space.split(observations.convert(batched(space, samples)))
    names = ('a', 'camera', 'pose') if kind == 'dictionary' else (0, 1, 2)
    for number, sample in enumerate(samples):
        np.testing.assert_array_equal(images[number], sample[names[1]])
        np.testing.assert_array_equal(vectors[number], np.array(
            naive(parts['a'], sample[names[0]]) + naive(NUMBERS, sample[names[2]]), np.float32))


def test_bytes_among_the_numbers_are_scaled_to_one():
    """A small image is numbers."""
    space = spaces.Dict({'tile': spaces.Box(0, 255, (1, 2, 2), np.uint8), 'x': NUMBERS})
    samples = sampled(space)
    found = Observations(space).convert(batched(space, samples))
    np.testing.assert_allclose(
        found[:, :4], [each['tile'].ravel() / 255 for each in samples], rtol=1e-6)


@pytest.mark.parametrize('value', [0, 4])
def test_a_value_outside_its_space_is_refused(value):
    """It would set a number of the next part."""
    space = spaces.Dict({'one': spaces.Discrete(3, start=1), 'two': spaces.Discrete(2)})
    observations = {'one': np.array([1, value]), 'two': np.array([0, 1])}
    with pytest.raises(ValueError, match="^observations: part 'one': .* is outside the space$"):
        Observations(space).convert(observations)


@pytest.mark.parametrize(('space', 'message'), [
    (spaces.Text(5), 'observations: Text is not supported: Box, Discrete, MultiDiscrete, '
                     'MultiBinary, Dict, Tuple'),
    (spaces.Dict({'a': spaces.Tuple([NUMBERS, spaces.Sequence(NUMBERS)])}),
     "observations: part 'a.1': Sequence is not supported: Box, Discrete, MultiDiscrete, "
     'MultiBinary, Dict, Tuple'),
    (spaces.Graph(NUMBERS, None), 'observations: Graph is not supported: '),
    (spaces.Dict({'left': IMAGE, 'x': NUMBERS, 'right': IMAGE}),
     "observations: two images, 'left' and 'right', are not supported: one, and any numbers"),
    (spaces.Dict({}), 'observations: 0 numbers, discrete ones one-hot, are not supported: '),
    (spaces.Discrete(10**12), 'observations: 1000000000000 numbers, discrete ones one-hot, are '
                              'not supported: 1 to 1048576')], ids=lambda value: str(value)[:20])
def test_observations_that_cannot_be_served_are_refused_in_one_line(space, message):
    with pytest.raises(ValueError) as error:
        Observations(space)
    assert str(error.value).startswith(message)
    assert '\n' not in str(error.value)


class Echo(gymnasium.Env):
    """Records the actions that reach it."""

    observation_space = NUMBERS

    def __init__(self, action_space):
        self.action_space, self.taken = action_space, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((2, 2)), {}

    def step(self, action):
        self.taken.append(action)
        return np.zeros((2, 2)), 0.0, False, False, {}


ACTIONS = [
    (spaces.Discrete(3), spaces.Discrete(3), [0, 2], [0, 2]),
    (spaces.Discrete(3, start=-1), spaces.Discrete(3), [0, 2], [-1, 1]),
    (spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([3, 2]), [[2, 0], [1, 1]],
     [[2, 0], [1, 1]]),
    (spaces.MultiDiscrete([[3, 2]], start=[[0, 5]]), spaces.MultiDiscrete([3, 2]),
     [[2, 0], [1, 1]], [[[2, 5]], [[1, 6]]]),
    (spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2]), [[1, 0], [1, 1]], [[1, 0], [1, 1]]),
    (spaces.MultiBinary((2, 1)), spaces.MultiDiscrete([2, 2]), [[1, 0], [1, 1]],
     [[[1], [0]], [[1], [1]]]),
    (spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (2,), np.float32),
     [[0.5, -1.0], [0.0, 1.0]], [[0.5, -1.0], [0.0, 1.0]]),
    (spaces.Box(-1, 1, (1, 2), np.float64), spaces.Box(-1, 1, (2,), np.float64),
     [[0.5, -1.0], [0.0, 1.0]], [[[0.5, -1.0]], [[0.0, 1.0]]]),
    (spaces.Box(-1, 1, (), np.float32), spaces.Box(-1, 1, (1,), np.float32), [[0.5], [1.0]],
     [0.5, 1.0])]


@pytest.mark.parametrize(('space', 'canonical', 'given', 'taken'), ACTIONS,
                         ids=lambda value: str(value).split(',')[0])
def test_actions_reach_the_environment_in_its_own_space(space, canonical, given, taken):
    envs = SyncVectorEnv([lambda: Echo(space)] * 2)
    checked = CheckedVectorEnv(envs, seed=0)
    assert checked.single_action_space == canonical
    checked.reset()
    checked.step(np.array(given, canonical.dtype))
    for env, wanted in zip(envs.envs, taken, strict=True):
        action, = env.taken
        assert np.asarray(action).tolist() == wanted
        assert np.asarray(action).dtype == space.dtype
        assert space.contains(np.asarray(action, space.dtype))
    checked.step(checked.action_space.sample())


@pytest.mark.parametrize('space', [
    spaces.Dict({'a': spaces.Discrete(2)}), spaces.Tuple([spaces.Discrete(2)]), spaces.Text(3),
    spaces.Box(0, 5, (2,), np.int64)], ids=str)
def test_other_actions_are_refused_in_one_line(space):
    with pytest.raises(ValueError, match=r'^actions: [^\n]* is not supported: Discrete, [^\n]*$'):
        Actions(space)


@pytest.mark.parametrize('wrong', [[[3, 0], [0, 0]], [[0, 0], [0, 2]], [[0, -1], [0, 0]]])
def test_an_action_out_of_range_does_not_reach_the_environment(wrong):
    envs = SyncVectorEnv([lambda: Echo(spaces.MultiDiscrete([3, 2], start=[7, 7]))] * 2)
    checked = CheckedVectorEnv(envs, seed=0)
    checked.reset()
    with pytest.raises(EnvError, match=r'^actions: -?\d is not within 0 to [12]$'):
        checked.step(np.array(wrong))
    with pytest.raises(EnvError, match='^actions: float64 is not an integer type$'):
        checked.step(np.zeros((2, 2)))
    assert not envs.envs[0].taken

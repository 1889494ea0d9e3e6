"""Spaces in canonical form: observations are as Gymnasium flattens them, actions as given."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.envs.canonical_spaces import Actions, ObservationError, Observations
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv, EnvError

IMAGE = spaces.Box(0, 255, (3, 36, 40), np.uint8)
NUMBERS = spaces.Box(-5, 5, (2, 2), np.float64)
SINGLE = {'numbers': NUMBERS, 'whole numbers': spaces.Box(-9, 9, (3,), np.int16),
          'one number': spaces.Box(-1, 1, (), np.float32)}
DISCRETE = {
    'one': spaces.Discrete(4), 'not from zero': spaces.Discrete(3, start=-1),
    'many': spaces.MultiDiscrete([[2, 3], [4, 1]], start=[[0, 5], [-2, 0]]),
    'flags': spaces.MultiBinary((2, 2)),
}
PARTS = {**SINGLE, **DISCRETE}
NESTED = spaces.Dict({
    'z': NUMBERS, 'inner': spaces.Tuple((
        spaces.Discrete(3, start=1), spaces.Dict({'many': spaces.MultiDiscrete([2, 3])}))),
    'flags': spaces.MultiBinary(3)})
VECTORS = {**DISCRETE, 'dictionary': spaces.Dict(PARTS), 'tuple': spaces.Tuple(PARTS.values()),
           'nested': NESTED}


def batched(space, samples):
    """Return samples as a vector environment returns them."""
    return concatenate(space, samples, create_empty_array(space, len(samples)))


def sampled(space, count=5):
    space.seed(3)
    return [space.sample() for _ in range(count)]


def test_numbers_are_one_vector_in_the_order_of_gymnasium():
    for name, space in VECTORS.items():
        samples = sampled(space)
        observations = Observations(space)
        found = observations.convert(batched(space, samples))
        assert found.dtype == observations.space.dtype == np.float32, name
        assert found.shape == (5, *observations.space.shape), name
        # Gymnasium flattens in the same order; it does not know of float32.
        np.testing.assert_allclose(
            found, [spaces.flatten(space, each) for each in samples], rtol=1e-6)
        assert all(observations.space.contains(each) for each in found), name


def test_a_single_box_stays_as_it_is():
    for space in (IMAGE, NUMBERS, SINGLE['whole numbers']):
        array = batched(space, sampled(space))
        for whole, given in (
                (space, array), (spaces.Dict({'only': space}), {'only': array}),
                (spaces.Tuple([spaces.Tuple([space])]), ((array,),))):
            assert Observations(whole).space is space
            assert Observations(whole).convert(given) is array


@pytest.mark.parametrize(('given', 'wanted'), [
    (np.longdouble, 'f8'), ('>f4', 'f4'), ('>i2', 'i2')])
def test_numbers_that_pytorch_has_not_are_converted(given, wanted):
    low = np.zeros(3, given)
    space = spaces.Box(low, low + 1, dtype=low.dtype)
    found = Observations(space)
    assert found.space == spaces.Box(0, 1, (3,), np.dtype(wanted).type)
    assert found.convert(np.ones((2, 3), given)).dtype == found.space.dtype == wanted
    if low.dtype.kind == 'f':
        actions = Actions(space)
        assert actions.space == found.space
        assert actions.convert(np.ones((2, 3), wanted)).dtype == low.dtype


def test_an_image_is_beside_the_numbers_and_a_small_one_is_among_them():
    parts = {'a': spaces.Discrete(3, start=2), 'camera': IMAGE, 'pose': NUMBERS}
    for space, names in ((spaces.Dict(parts), list(parts)),
                         (spaces.Tuple(parts.values()), range(3))):
        samples = sampled(space)
        observations = Observations(space)
        assert isinstance(observations.space, ImageAndVector)
        images, vectors = observations.space.split(observations.convert(batched(space, samples)))
        for image, vector, sample in zip(images, vectors, samples, strict=True):
            one, camera, pose = (sample[name] for name in names)
            np.testing.assert_array_equal(image, camera)
            np.testing.assert_array_equal(vector, np.array(
                [*spaces.flatten(parts['a'], one), *pose.flat], np.float32))
    # Of an environment that joins them itself, such as a robot, the numbers are checked too.
    rows = observations.convert(batched(space, samples))
    joined = Observations(observations.space)
    assert joined.convert(rows) is rows
    joined.space.split(rows)[1][0, 0] = np.nan
    with pytest.raises(ObservationError, match='nan is not allowed'):
        joined.convert(rows)
    space = spaces.Dict({'tile': spaces.Box(0, 255, (1, 2, 2), np.uint8), 'x': NUMBERS})
    samples = sampled(space)
    np.testing.assert_allclose(Observations(space).convert(batched(space, samples))[:, :4],
                               [each['tile'].ravel() / 255 for each in samples], rtol=1e-6)


def test_observations_that_cannot_be_served_are_refused_in_one_line():
    for space, message in (
            (spaces.Dict({'a': spaces.Tuple([NUMBERS, spaces.Sequence(NUMBERS)])}),
             "observations: part 'a.1': Sequence is not supported: Box, "),
            (spaces.Dict({'left': IMAGE, 'x': NUMBERS, 'right': IMAGE}),
             "observations: two images, 'left' and 'right', are not supported: "),
            (spaces.Box(0, 1, (0, 3)), 'observations: Box('),
            (spaces.Dict({}), 'observations: 0 numbers, discrete ones one-hot, are not '),
            (spaces.Discrete(10**12), 'observations: 1000000000000 numbers, ')):
        with pytest.raises(ValueError, match=f'^{re.escape(message)}') as error:
            Observations(space)
        assert '\n' not in str(error.value)
    # A value outside its space would set a number of the next part.
    space = spaces.Dict({'one': spaces.Discrete(3, start=1), 'two': spaces.Discrete(2)})
    for value in (0, 4):
        with pytest.raises(ValueError, match=rf"^\['one'\]: {value} is not allowed: 1 to 3$"):
            Observations(space).convert({'one': np.array([1, value]), 'two': np.array([0, 1])})


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
    (spaces.Discrete(3, start=-1), spaces.Discrete(3), [0, 2], [-1, 1]),
    (spaces.MultiDiscrete([[3, 2]], start=[[0, 5]]), spaces.MultiDiscrete([3, 2]),
     [[2, 0], [1, 1]], [[[2, 5]], [[1, 6]]]),
    (spaces.MultiBinary((2, 1)), spaces.MultiDiscrete([2, 2]), [[1, 0], [1, 1]],
     [[[1], [0]], [[1], [1]]]),
    (spaces.Box(-1, 1, (1, 2), np.float64), spaces.Box(-1, 1, (2,), np.float64),
     [[0.5, -1.0], [0.0, 1.0]], [[[0.5, -1.0]], [[0.0, 1.0]]]),
    (spaces.Box(-1, 1, (), np.float32), spaces.Box(-1, 1, (1,), np.float32), [[0.5], [1.0]],
     [0.5, 1.0])]


def test_actions_reach_the_environment_in_its_own_space():
    for space, canonical, given, taken in ACTIONS:
        envs = SyncVectorEnv([lambda space=space: Echo(space)] * 2)
        checked = CheckedVectorEnv(envs, seed=0)
        assert checked.single_action_space == canonical, space
        checked.reset()
        checked.step(np.array(given, canonical.dtype))
        for env, wanted in zip(envs.envs, taken, strict=True):
            action = np.asarray(env.taken.pop())
            assert action.tolist() == wanted, space
            assert action.dtype == space.dtype
            assert space.contains(action)
        checked.step(checked.action_space.sample())


def test_other_actions_are_refused_in_one_line():
    for space in (spaces.Dict({'a': spaces.Discrete(2)}), spaces.Tuple([spaces.Discrete(2)]),
                  spaces.Text(3), spaces.Box(0, 5, (2,), np.int64)):
        with pytest.raises(
                ValueError, match=r'^actions: [^\n]* is not supported: Discrete, [^\n]*$'):
            Actions(space)
    checked = CheckedVectorEnv(
        SyncVectorEnv([lambda: Echo(spaces.MultiDiscrete([3, 2], start=[7, 7]))]), seed=0)
    for wrong in ([3, 0], [0, 2], [0, -1]):
        with pytest.raises(EnvError, match=r'^actions: -?\d is not within 0 to [12]$'):
            checked.step(np.array([wrong]))

"""Exploration schedule: decrease with steps, difference between actors."""

import pytest

from vdl_ros.rl.algorithm_config import A3cConfig, DqnConfig, ImpalaConfig, PpoConfig
from vdl_ros.rl.policy.exploration import exploration_schedule

NAMES = [f'actor-{i}' for i in range(200)]


@pytest.mark.parametrize('exploration', ['epsilon', 'boltzmann'])
def test_exploration_is_linear_from_start_to_end_and_then_constant(exploration):
    explore = exploration_schedule(DqnConfig(
        exploration=exploration, exploration_start=0.9, exploration_end=0.1,
        exploration_steps=1000), 'a')
    assert [explore(steps) for steps in (0, 250, 500, 1000, 10**9)] == pytest.approx(
        [0.9, 0.7, 0.5, 0.1, 0.1])


def test_a_frozen_policy_explores_as_little_as_at_the_end():
    own = DqnConfig(exploration_start=0.9, exploration_end=0.1, exploration_spread=0.0)
    assert exploration_schedule(own, 'a', frozen=True)(0) == pytest.approx(0.1)


def test_without_a_spread_all_actors_explore_equally():
    assert len({exploration_schedule(DqnConfig(), name)(20_000) for name in NAMES}) == 1


def test_epsilon_is_raised_to_a_power_from_1_to_1_plus_spread():
    own = DqnConfig(exploration_start=0.5, exploration_end=0.5, exploration_spread=7.0)
    found = sorted(exploration_schedule(own, name)(0) for name in NAMES)
    assert len(set(found)) == len(NAMES)
    assert 0.5**8 <= found[0] < 0.5**7.5
    assert 0.5**1.5 < found[-1] <= 0.5
    middle = found[len(found) // 2]
    assert 0.5**5.5 < middle < 0.5**3.5


def test_the_temperature_is_divided_by_1_to_1_plus_spread():
    own = DqnConfig(exploration='boltzmann', exploration_start=3.0, exploration_end=3.0,
                    exploration_spread=2.0)
    found = sorted(exploration_schedule(own, name)(0) for name in NAMES)
    assert 1.0 <= found[0] < 1.05
    assert 2.7 < found[-1] <= 3.0


def test_the_same_name_gives_the_same_exploration():
    own = DqnConfig(exploration_start=0.5, exploration_spread=7.0)
    for name in NAMES[:5]:
        assert exploration_schedule(own, name)(123) == exploration_schedule(own, name)(123)


@pytest.mark.parametrize('own', [ImpalaConfig(), A3cConfig(), PpoConfig()])
def test_exploration_is_0_for_policies_without_action_values(own):
    assert exploration_schedule(own, 'a')(0) == 0.0

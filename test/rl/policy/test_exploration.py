"""Actors explore less and less, each in its own measure."""

import pytest

from vdl_ros.rl.algorithm_config import A3cConfig, DqnConfig, ImpalaConfig, PpoConfig
from vdl_ros.rl.policy.exploration import exploration_schedule

NAMES = [f'actor-{i}' for i in range(200)]


@pytest.mark.parametrize('exploration', ['epsilon', 'boltzmann'])
def test_it_goes_in_a_line_from_start_to_end_and_stays(exploration):
    explore = exploration_schedule(DqnConfig(
        exploration=exploration, exploration_start=0.9, exploration_end=0.1,
        exploration_steps=1000), 'a')
    assert [explore(steps) for steps in (0, 250, 500, 1000, 10**9)] == pytest.approx(
        [0.9, 0.7, 0.5, 0.1, 0.1])


def test_without_a_spread_all_actors_are_alike():
    assert len({exploration_schedule(DqnConfig(), name)(20_000) for name in NAMES}) == 1


def test_of_epsilon_an_actor_has_a_power_between_1_and_1_plus_spread():
    own = DqnConfig(exploration_start=0.5, exploration_end=0.5, exploration_spread=7.0)
    found = sorted(exploration_schedule(own, name)(0) for name in NAMES)
    assert len(set(found)) == len(NAMES)
    assert 0.5**8 <= found[0] < 0.5**7.5
    assert 0.5**1.5 < found[-1] <= 0.5
    middle = found[len(found) // 2]
    assert 0.5**5.5 < middle < 0.5**3.5


def test_of_the_temperature_an_actor_has_a_part():
    own = DqnConfig(exploration='boltzmann', exploration_start=3.0, exploration_end=3.0,
                    exploration_spread=2.0)
    found = sorted(exploration_schedule(own, name)(0) for name in NAMES)
    assert 1.0 <= found[0] < 1.05
    assert 2.7 < found[-1] <= 3.0


def test_the_same_name_explores_the_same():
    own = DqnConfig(exploration_start=0.5, exploration_spread=7.0)
    for name in NAMES[:5]:
        assert exploration_schedule(own, name)(123) == exploration_schedule(own, name)(123)


@pytest.mark.parametrize('own', [ImpalaConfig(), A3cConfig(), PpoConfig()])
def test_a_policy_that_is_learned_as_such_explores_by_itself(own):
    assert exploration_schedule(own, 'a')(0) == 0.0

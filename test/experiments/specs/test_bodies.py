"""Coordinates of bodies: the products of SLM-Lab, and contradictions."""

import pytest

from vdl_ros.experiments.specs.bodies import bodies


def test_outer_inner_and_custom_products():
    assert bodies('outer', 2, agents=2, envs=1) == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert bodies('inner', 1, agents=2, envs=2) == [(0, 0, 0), (1, 1, 0)]
    assert len(bodies('outer', 12)) == 12
    listed = [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert bodies('custom', listed, agents=1, envs=2) == [tuple(each) for each in listed]


@pytest.mark.parametrize(('product', 'num', 'message'), [
    ('odd', 1, 'product'), ('outer', 0, 'num'), ('outer', [[0, 0, 0]], 'with product outer'),
    ('custom', 3, 'a list of'), ('custom', [[0, 0]], r'\[agent, environment, body\]'),
    ('custom', [[0, 1, 0]], 'environment 0 to 0'), ('custom', [[0, 0, 0], [0, 0, 0]], 'twice'),
    ('custom', [[0, 0, 0], [0, 0, 2]], 'count from 0'),
])
def test_bodies_that_contradict_themselves_are_refused(product, num, message):
    with pytest.raises(ValueError, match=message):
        bodies(product, num)


def test_inner_needs_as_many_agents_as_environments():
    with pytest.raises(ValueError, match='2 agents and 1 environments'):
        bodies('inner', 1, agents=2, envs=1)

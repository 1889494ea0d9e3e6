"""Search spaces and bodies: what they draw or multiply, and what they refuse."""

import optuna
import pytest

from vdl_ros.common.settings import SettingError
from vdl_ros.experiments.checker import bodies
from vdl_ros.experiments.spec import agent_settings, make_space

KNOWN = agent_settings()


def space(name, content):
    return make_space(KNOWN[name], content)


def draw(spaces, count=200):
    """Return ``count`` values of each space, drawn together."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    found = {name: [] for name in spaces}
    for _ in range(count):
        trial = study.ask()
        for name, each in spaces.items():
            each.draw(trial)
            found[name].append(each.value(trial.params[each.parameter]))
        study.tell(trial, 0.0)
    return found


def test_each_key_draws_from_its_own_space():
    # SLM-Lab's first version drew all of them from the last.
    found = draw({
        'choice': space('hidden_size', [16, 32]),
        'whole': space('ppo_epochs', {'low': 3, 'high': 5}),
        'uniform': space('learning_rate', {'low': 0.1, 'high': 0.2}),
        'normal': space('discount', {'mean': 0.9, 'deviation': 0.01}),
        'log': space('entropy_cost', {'low': 1e-4, 'high': 1e-1, 'log': True})})
    assert set(found['choice']) == {16, 32}
    assert set(found['whole']) == {3, 4, 5}
    assert 0.1 <= min(found['uniform']) < 0.11 < 0.19 < max(found['uniform']) <= 0.2
    mean = sum(found['normal']) / 200
    assert mean == pytest.approx(0.9, abs=0.003)
    assert 0.004 < max(found['normal']) - mean < 0.05
    assert 70 < sum(each < 3.16e-3 for each in found['log']) < 130


def test_a_normal_distribution_ends_where_the_setting_does():
    found = draw({'discount': space('discount', {'mean': 0.99, 'deviation': 0.1}),
                  'ppo_epochs': space('ppo_epochs', {'mean': 4, 'deviation': 2})})
    assert max(found['discount']) == 1.0
    assert min(found['ppo_epochs']) == 1
    assert all(type(each) is int for each in found['ppo_epochs'])


def test_a_space_that_cannot_be_searched_is_refused():
    for name, content, message in (
            ('learning_rate', [0.1], 'one value'), ('hidden_size', [16, 16], 'one value'),
            ('learning_rate', {'low': 0.1, 'high': 0.1}, 'one value'),
            ('learning_rate', {'mean': 0.1, 'deviation': 0.0}, 'one value'),
            ('hidden_size', [16, 32, 16], 'a value twice'),
            ('hidden_size', [16, 5000], 'hidden_size: 5000 is not allowed'),
            ('learning_rate', {'low': 0.2, 'high': 0.1}, 'low is above high'),
            ('learning_rate', {'low': 0.0, 'high': 0.1, 'log': True}, 'above 0'),
            ('learning_rate', {'low': 0.1}, 'is not a space'),
            ('network', {'low': 0, 'high': 1}, 'it is not a number'),
            ('hidden_size', {'low': 16.5, 'high': 32}, 'a whole number')):
        with pytest.raises(SettingError, match=message):
            space(name, content)


def test_bodies_are_the_products_of_slm_lab_and_contradictions_are_refused():
    assert bodies('outer', 2, agents=2, envs=1) == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert bodies('inner', 1, agents=2, envs=2) == [(0, 0, 0), (1, 1, 0)]
    listed = [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert bodies('custom', listed, agents=1, envs=2) == [tuple(each) for each in listed]
    for product, num, agents, message in (
            ('odd', 1, 1, 'product'), ('outer', 0, 1, 'num'),
            ('custom', 3, 1, 'a list of'),
            ('custom', [[0, 0]], 1, r'\[agent, environment, number\]'),
            ('custom', [[0, 1, 0]], 1, 'environment 0 to 0'),
            ('custom', [[0, 0, 0], [0, 0, 0]], 1, 'twice'),
            ('custom', [[0, 0, 0], [0, 0, 2]], 1, 'count from 0'),
            ('inner', 1, 2, '2 agents and 1 environments')):
        with pytest.raises(ValueError, match=message):
            bodies(product, num, agents=agents, envs=1)

"""Samplers: the same values after a search is opened again, and CMA-ES without a pickle."""

import math

import optuna
import pytest
from optuna.trial import Trial

from vdl_ros.experiments.running.samplers import make_sampler
from vdl_ros.experiments.running.search import _suggest
from vdl_ros.experiments.specs.spaces import make_space
from vdl_ros.experiments.specs.spec import Search, agent_settings
from vdl_ros.experiments.specs.spec_config import SearchConfig

KNOWN = agent_settings()
RATE = make_space(KNOWN['learning_rate'], '', {'low': 1e-4, 'high': 0.1, 'log': True})
WIDTH = make_space(KNOWN['hidden_size'], '', {'low': 8, 'high': 256})
SIZES = make_space(KNOWN['lstm_size'], '', [0, 64, 128])
RATES = make_space(KNOWN['learning_rate'], '', [0.1, 0.01])


def search(sampler, **spaces):
    return Search(SearchConfig(sampler=sampler, startup_trials=3), spaces)


def sampler_of(found, first=None):
    return make_sampler(found, {name: name for name in found.spaces}, 7, first or {})


def draw(trial, found, names=None):
    for name in names or found.spaces:
        _suggest(trial, name, found.spaces[name])
    return trial.params


def score(params):
    return -abs(params['learning_rate'] - 0.01) - params.get('hidden_size', 0) / 1000


@pytest.mark.parametrize('found', [
    search('random', learning_rate=RATE, hidden_size=WIDTH, lstm_size=SIZES),
    search('tpe', learning_rate=RATE, hidden_size=WIDTH, lstm_size=SIZES),
    search('cmaes', learning_rate=RATE, hidden_size=WIDTH, lstm_size=SIZES),
    search('grid', learning_rate=RATES, lstm_size=SIZES)], ids=lambda each: each.config.sampler)
def test_a_search_that_is_opened_for_each_trial_draws_the_same_and_nothing_twice(found):
    whole, parts = optuna.storages.InMemoryStorage(), optuna.storages.InMemoryStorage()
    one = optuna.create_study(storage=whole, sampler=sampler_of(found), direction='maximize')
    for _ in range(6):
        trial = one.ask()
        draw(trial, found)
        one.tell(trial, score(trial.params))
    for number in range(6):
        other = optuna.create_study(storage=parts, study_name='x', sampler=sampler_of(found),
                                    load_if_exists=True, direction='maximize')
        # Killed after the first parameter.
        draw(other.ask(), found, list(found.spaces)[:1])
        again = optuna.load_study(storage=parts, study_name='x', sampler=sampler_of(found))
        trial = Trial(again, again.get_trials()[number]._trial_id)
        draw(trial, found)
        again.tell(trial, score(trial.params))
    drawn = [each.params for each in one.get_trials()]
    assert [each.params for each in again.get_trials()] == drawn
    assert len({str(each) for each in drawn}) == 6


@pytest.mark.parametrize('name', ['random', 'tpe', 'cmaes'])
def test_the_first_trial_has_the_known_values(name):
    found = search(name, learning_rate=RATE, hidden_size=WIDTH, lstm_size=SIZES)
    study = optuna.create_study(
        sampler=sampler_of(found, {'learning_rate': 0.003, 'lstm_size': 64}))
    first, second = (draw(study.ask(), found) for _ in range(2))
    assert (first['learning_rate'], first['lstm_size']) == (0.003, 64)
    assert 8 <= first['hidden_size'] <= 256
    assert second['learning_rate'] != 0.003


def test_cmaes_approaches_a_peak():
    found = search('cmaes', learning_rate=RATE, hidden_size=WIDTH)
    study = optuna.create_study(sampler=sampler_of(found), direction='maximize')

    def distance(params):
        return math.hypot(math.log10(params['learning_rate'] / 1e-3) / 3,
                          (params['hidden_size'] - 200) / 248)

    for _ in range(90):
        trial = study.ask()
        draw(trial, found)
        study.tell(trial, -distance(trial.params))
    distances = [-each.value for each in study.get_trials()]
    assert sum(distances[-18:]) / 18 < 0.25 * sum(distances[:18]) / 18

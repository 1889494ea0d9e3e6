"""Searches with trials that take no time: pruning, several hosts, samplers, storages."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.pruners import NopPruner
from optuna.samplers import RandomSampler
from optuna.trial import Trial

from vdl_ros.experiments.checker import read_specs
from vdl_ros.experiments.search import (
    Searcher,
    StorageError,
    make_sampler,
    open_storage,
    open_study,
)
from vdl_ros.experiments.spec import Search, SearchConfig, agent_settings, make_space
from vdl_ros.experiments.trials import TrialRunner
from vdl_ros.rl.runs.training_process import TrainingError

CONTENT = {
    'agent': {'algorithm': 'ppo', 'total_steps': 1000}, 'env': {'env_id': 'CartPole-v1'},
    'meta': {'sessions': 1, 'trials': 8},
    'search': {'sampler': 'random', 'pruner': 'median', 'startup_trials': 2,
               'agent': {'learning_rate': {'low': 1e-3, 'high': 1e-2}}}}
KNOWN = agent_settings()
RATE = make_space(KNOWN['learning_rate'], {'low': 1e-4, 'high': 0.1, 'log': True})
WIDTH = make_space(KNOWN['hidden_size'], {'low': 8, 'high': 256})
SIZES = make_space(KNOWN['lstm_size'], [0, 64, 128])
RATES = make_space(KNOWN['learning_rate'], [0.1, 0.01])


class FakeRunner:
    """Runs trials whose return is their learning rate at each of three places."""

    def __init__(self, spec, folder: Path, fails=()):
        self.spec, self.folder, self.fails = spec, folder, fails
        self.ran: list[int] = []

    def run(self, number, values, stop, report):
        self.ran.append(number)
        if number in self.fails:
            raise TrainingError('failed; see a.log')
        for place in (1, 2, 3):
            report(place, values['learning_rate'])
        return not stop()


@pytest.fixture
def make(tmp_path):
    """Return a function that makes a searcher of a folder."""
    path = tmp_path / 'file.yaml'
    path.write_text(yaml.safe_dump({'one': CONTENT}))
    specs, faults = read_specs(path)
    assert not faults

    def make_searcher(folder='a', url='', fails=(), log=lambda text: None):
        (tmp_path / folder).mkdir(exist_ok=True)
        runner = FakeRunner(specs['one'], tmp_path / folder, fails)
        return runner, Searcher(
            runner, specs['one'].search,
            lambda number, values: (values['learning_rate'], {'final_return': 0.0}),
            url=url, log=log)
    return make_searcher


def test_each_session_of_a_trial_has_its_own_seed(tmp_path):
    path = tmp_path / 'file.yaml'
    path.write_text(yaml.safe_dump({'one': {**CONTENT, 'meta': {
        'sessions': 2, 'trials': 8, 'seed': 5}}}))
    specs, faults = read_specs(path)
    assert not faults
    sessions = TrialRunner(specs['one'], tmp_path).sessions(0, {'learning_rate': 0.01})
    assert [each.settings['seed'] for each in sessions] == ['5', '6']
    assert [each.folder.name for each in sessions] == ['session-0', 'session-1']


def test_trials_below_the_median_are_pruned_and_failed_ones_do_not_end_the_search(make):
    runner, searcher = make(fails=(1,))
    assert searcher.run(1, threading.Event())
    found = {each.number: each for each in searcher.outcomes()}
    assert sorted(found) == list(range(8)) == runner.ran
    assert found[0].values == {'learning_rate': 0.001}, 'the value of the preset'
    assert (found[1].state, found[1].error) == ('failed', 'failed; see a.log')
    # Two complete trials are needed first.
    assert [found[number].state for number in (0, 2)] == ['complete', 'complete']
    pruned = [each for each in found.values() if each.state == 'pruned']
    best = max(each.values['learning_rate'] for each in found.values() if each.number != 1)
    assert pruned
    assert all(each.values['learning_rate'] < best for each in pruned)
    assert max(each.value or 0.0 for each in found.values()) == best


def test_hosts_that_share_a_database_run_each_trial_once(make, tmp_path):
    url = f'sqlite:///{tmp_path / "search.db"}'
    pairs = [make('a', url), make('b', url)]
    pause = threading.Event()

    def search_together(pair):
        # SQLite has no locks of rows, by which one host gets the trial that waits from the start.
        while pair is pairs[1] and not pairs[0][0].ran:
            pause.wait(0.01)
        pair[1].run(1, threading.Event())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(search_together, pairs))
    assert sorted(pairs[0][0].ran + pairs[1][0].ran) == list(range(8))
    assert {each.number for each in pairs[0][1].outcomes()} == set(range(8))


def test_a_trial_of_this_folder_that_was_abandoned_is_run_and_that_of_another_is_not(
        make, tmp_path):
    url = f'sqlite:///{tmp_path / "search.db"}'
    for folder in ('a', 'b'):
        _, searcher = make(folder, url)
        # As if it were killed with a trial that runs.
        trial = searcher.study.ask()
        trial.set_user_attr('owner', (tmp_path / folder / '.owner').read_text())
    runner, searcher = make('a', url)
    assert not searcher.run(1, threading.Event())
    assert sorted(runner.ran) == [0, 2, 3, 4, 5, 6, 7]
    runner, searcher = make('b', url)
    assert searcher.run(1, threading.Event())
    assert runner.ran == [1]


def test_a_trial_whose_process_died_is_begun_again_by_whoever_comes(make, tmp_path):
    path, lines = tmp_path / 'search.db', []
    killed, searcher = make('a', f'sqlite:///{path}', log=lines.append)
    trial = searcher._next()
    searcher._spaces['learning_rate'].draw(trial)
    searcher.study._storage.record_heartbeat(trial._trial_id)
    runner, other = make('b', f'sqlite:///{path}', log=lines.append)
    assert not other.run(1, threading.Event())
    assert runner.ran == [1, 2, 3, 4, 5, 6, 7]
    assert lines[-1].startswith('trials 0 run elsewhere, or their processes ended within the la')
    with sqlite3.connect(path) as database:
        database.execute("update trial_heartbeats set heartbeat = '2020-01-01 00:00:00'")
    assert other.run(1, threading.Event())
    found = {each.number: each for each in other.outcomes()}
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found[8].values == {'learning_rate': 0.001}, 'of trial 0'
    # A process that only stood still.
    searcher._run_trial(trial, lambda: False, failures := [])
    assert (killed.ran, failures) == ([0], [])
    assert lines[-1].startswith('trial 0: was begun again elsewhere')


def search(sampler, **spaces):
    return Search(SearchConfig(sampler=sampler, startup_trials=3), spaces)


def draw(trial, found, names=None):
    for name in names or found.spaces:
        found.spaces[name].draw(trial)
    return trial.params


def score(params):
    return -abs(params['learning_rate'] - 0.01) - params.get('hidden_size', 0) / 1000


@pytest.mark.parametrize('found', [
    search('random', learning_rate=RATE, hidden_size=WIDTH, lstm_size=SIZES),
    search('tpe', learning_rate=RATE, hidden_size=WIDTH, lstm_size=SIZES),
    search('grid', learning_rate=RATES, lstm_size=SIZES)], ids=lambda each: each.config.sampler)
def test_a_search_that_is_opened_for_each_trial_draws_the_same_and_nothing_twice(found):
    def opened(storage):
        return optuna.create_study(storage=storage, study_name='x', load_if_exists=True,
                                   sampler=make_sampler(found, 7), direction='maximize')

    whole, parts = optuna.storages.InMemoryStorage(), optuna.storages.InMemoryStorage()
    one = opened(whole)
    for number in range(6):
        trial = one.ask()
        draw(trial, found)
        one.tell(trial, score(trial.params))
        # Killed after the first parameter.
        draw(opened(parts).ask(), found, list(found.spaces)[:1])
        again = opened(parts)
        trial = Trial(again, again.get_trials()[number]._trial_id)
        draw(trial, found)
        again.tell(trial, score(trial.params))
    drawn = [each.params for each in one.get_trials()]
    assert [each.params for each in again.get_trials()] == drawn
    assert len({str(each) for each in drawn}) == 6


def study_of(storage, content=None):
    return open_study(storage, 'file/spec', RandomSampler(), NopPruner(), content or {'a': 1})


def test_a_line_that_was_cut_short_and_a_lock_that_was_left_do_not_matter(tmp_path):
    study_of(open_storage(tmp_path)).ask()
    journal = tmp_path / 'search.journal'
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines()[-1][:20])
    (tmp_path / 'search.journal.lock').symlink_to(journal)
    study = study_of(open_storage(tmp_path))
    assert study.ask().number == 1


def test_a_file_of_something_else_and_a_changed_spec_are_one_line(tmp_path):
    study_of(open_storage(tmp_path))
    with pytest.raises(StorageError, match='the spec has changed'):
        study_of(open_storage(tmp_path), {'a': 2})
    for line in (b'[1, 2]', b'{"op_code": 99}', b'\xff'):
        (tmp_path / 'search.journal').write_bytes(line + b'\n')
        with pytest.raises(StorageError, match='search.journal is damaged, or not the file of a'):
            open_storage(tmp_path)


def test_a_storage_that_cannot_be_used_is_one_line_without_its_password(tmp_path):
    for url, message in (
            ('postgresql+none://me:secret@host/db', r'--storage: postgresql\+none://me:\*\*\*@h'),
            ('odd', '--storage: .* cannot be used'),
            ('sqlite:////does/not/exist/a.db', '--storage: sqlite:.* unable to open')):
        with pytest.raises(StorageError, match=message) as raised:
            open_storage(tmp_path, url)
        assert '\n' not in str(raised.value), url
        assert 'secret' not in str(raised.value), url

"""A search with trials that take no time: pruning, failures, several hosts, abandoned trials."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from vdl_ros.experiments.running.search import Searcher
from vdl_ros.experiments.running.storage import StorageError
from vdl_ros.experiments.specs.checker import read_specs
from vdl_ros.rl.runs.training_process import TrainingError

CONTENT = {
    'agent': {'algorithm': 'ppo', 'total_steps': 1000}, 'env': {'env_id': 'CartPole-v1'},
    'meta': {'sessions': 1, 'trials': 8},
    'search': {'sampler': 'random', 'pruner': 'median', 'startup_trials': 2,
               'agent': {'learning_rate': {'low': 1e-3, 'high': 1e-2}}}}


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
        # The return at the first place is known before the session ends.
        for _ in range(5):
            if stop():
                return False
            threading.Event().wait(0.1)
        return True


@pytest.fixture
def make(tmp_path):
    """Return a function that makes a searcher of a folder."""
    path = tmp_path / 'file.yaml'
    path.write_text(yaml.safe_dump({'one': CONTENT}))
    specs, faults = read_specs(path)
    assert not faults

    def make_searcher(folder='a', url='', fails=()):
        (tmp_path / folder).mkdir(exist_ok=True)
        runner = FakeRunner(specs['one'], tmp_path / folder, fails)
        return runner, Searcher(
            runner, specs['one'].search,
            lambda number, values: (values['learning_rate'], {'final_return': 0.0}),
            url=url, log=lambda text: None)
    return make_searcher


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
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: pair[1].run(1, threading.Event()), pairs))
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


def test_a_spec_that_has_changed_is_refused(make, tmp_path):
    make()
    text = (tmp_path / 'file.yaml').read_text()
    (tmp_path / 'file.yaml').write_text(text.replace('total_steps: 1000', 'total_steps: 2000'))
    specs, _ = read_specs(tmp_path / 'file.yaml')
    runner = FakeRunner(specs['one'], tmp_path / 'a')
    with pytest.raises(StorageError, match='the spec has changed'):
        Searcher(runner, specs['one'].search, lambda *_: (0.0, {}), url='', log=print)

"""Recorded runs: series equal what was written; errors are one line; labels of groups."""

import shutil
from pathlib import Path

import pytest
import yaml
from refusals import refusal

from vdl_ros.rl.runs.recorded_run import (
    RecordedRun,
    RunReadError,
    check_group,
    environments,
    group_labels,
)
from vdl_ros.rl.runs.run_folder import RunFolder


@pytest.fixture
def run(tmp_path):
    """Return a run whose return is a tenth, and whose entropy a thousandth, of its steps."""
    folder = RunFolder(tmp_path / 'run')
    folder.open({'env_id': 'x', 'algorithm': 'impala'}, 0)
    for count, at in enumerate((100, 200, 400), 1):
        folder.report(
            {'agent_steps': at, 'wall_s': at / 50, 'mean_return_100': at / 10,
             'mean_length_100': at / 20, 'success_rate_100': 0.5, 'episodes': 3 * count,
             'steps_per_s': 50.0, 'policy_lag_mean': 0.0, 'trajectories_lost': 0},
            {'losses/entropy': at / 1000})
    return folder.path


def refused(path, *axes):
    """Return why a run, or a series of it, cannot be read."""
    return refusal(RunReadError, lambda: RecordedRun(path).series(*axes))


def test_series_equal_the_recorded_values(run):
    found = RecordedRun(run)
    for x, y, at, values in (
            ('steps', 'return', [100, 200, 400], [10, 20, 40]),
            ('time', 'length', [2, 4, 8], [5, 10, 20]),
            ('episodes', 'steps_per_s', [3, 6, 9], [50, 50, 50]),
            ('time', 'losses/entropy', [2, 4, 8], [0.1, 0.2, 0.4])):
        series = found.series(x, y)
        assert series.x.tolist() == at, (x, y)
        assert series.y == pytest.approx(values, rel=1e-6), (x, y)


def test_a_progress_file_is_the_run_around_it_or_alone_one_without_settings(run, tmp_path):
    found = RecordedRun(run / 'progress.csv')
    assert found.settings == {'env_id': 'x', 'algorithm': 'impala'}
    assert found.series('steps', 'losses/entropy').x.tolist() == [100, 200, 400]
    other = tmp_path / 'mine.csv'
    other.write_text((run / 'progress.csv').read_text())
    found = RecordedRun(other)
    assert found.settings == {}
    assert found.series('steps', 'return').y.tolist() == [10, 20, 40]
    assert found.names()[:4] == ['return', 'length', 'success', 'agent_steps']


def test_rows_before_the_first_episode_and_an_incomplete_last_line_are_skipped(tmp_path):
    (tmp_path / 'progress.csv').write_text(
        'agent_steps,mean_return_100\n10,nan\n20,1.5\n30,2.5\n40')
    found = RecordedRun(tmp_path).series('steps', 'return')
    assert (found.x.tolist(), found.y.tolist()) == ([20, 30], [1.5, 2.5])


HEADER = 'agent_steps,wall_s,mean_return_100\n'


def test_an_error_explains_an_invalid_progress_csv_or_curve(tmp_path):
    for text, message in (
            ('', 'progress.csv: empty: the run has no progress yet'),
            (HEADER, 'progress.csv: no rows: the run has no progress yet'),
            (HEADER + '10,1', 'progress.csv: no rows: the run has no progress yet'),
            (HEADER + '10,1,2\n20,2\n30,3,4\n', "progress.csv: line 3 is damaged: '20,2'"),
            (HEADER + '10,1,2\n20,2,x\n30,3,4\n', "progress.csv: line 3 is damaged: '20,2,x'"),
            (HEADER + '10,1,2\n20,2,3,4\n', "progress.csv: line 3 is damaged: '20,2,3,4'"),
            (HEADER + '10,1,2\n\n30,3,4\n', "progress.csv: line 3 is damaged: ''"),
            (HEADER + 'nan,1,2\n', 'progress.csv: line 2 is damaged: agent_steps is not finite'),
            ('\xff\xfe\n\n', 'progress.csv: not a table of numbers')):
        (tmp_path / 'progress.csv').write_bytes(text.encode('latin-1'))
        assert refused(tmp_path) == f'{tmp_path}/{message}'
    for text, x, message in (
            (HEADER + '10,1,nan\n', 'steps',
             'mean_return_100 against agent_steps: there is no value yet'),
            (HEADER + '20,1,1\n10,2,1\n', 'steps',
             'mean_return_100 against agent_steps: x decreases from 20 to 10'),
            (HEADER + '20,1,1\n', 'episodes', 'progress.csv has no episodes; '
             'there is agent_steps, wall_s, mean_return_100')):
        (tmp_path / 'progress.csv').write_text(text)
        assert refused(tmp_path, x, 'return') == f'{tmp_path}: {message}'


def test_unreadable_events_are_reported_only_when_needed(run):
    (run / 'events.out.tfevents.1.folder').mkdir()
    assert RecordedRun(run).series('steps', 'return').y.tolist() == [10, 20, 40]
    assert refused(run, 'steps', 'losses/entropy') == (
        f'{run}: events cannot be read: IsADirectoryError')


def test_an_error_explains_a_path_without_a_run(tmp_path):
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'session-0.log').touch()
    (tmp_path / 'odd' / 'progress.csv').mkdir(parents=True)
    for name, message in (
            ('nowhere', 'nowhere: no such folder or file'),
            ('empty', 'empty: not a run: no progress.csv'),
            ('session-0.log', 'session-0.log: not a run: no progress.csv'),
            ('odd', 'odd/progress.csv: cannot be read: Is a directory')):
        assert refused(tmp_path / name) == f'{tmp_path}/{message}'


def test_an_error_explains_an_invalid_config_yaml(run):
    for text in ('- a\n- b\n', 'a: [', '!!python/object/apply:os.getcwd []'):
        (run / 'config.yaml').write_text(text)
        assert refused(run).startswith(f'{run}/config.yaml: not '), text


SETTINGS = {'env_id': 'CartPole-v1', 'algorithm': 'impala', 'learning_rate': 0.001,
            'hidden_size': 64, 'total_steps': 1000, 'seed': 1}


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Return a function that makes a run for each of some settings, in r0, r1, ..."""
    monkeypatch.chdir(tmp_path)

    def make(*changes):
        runs = []
        for change in changes:
            path = Path(f'r{len(list(tmp_path.iterdir()))}')
            path.mkdir()
            (path / 'progress.csv').write_text('agent_steps,mean_return_100\n1,2\n')
            (path / 'config.yaml').write_text(yaml.safe_dump(SETTINGS | change, sort_keys=False))
            runs.append(RecordedRun(path))
        return runs
    return make


LABELS = [
    ([{}], ['impala']),
    ([{}, {'algorithm': 'ppo'}], ['impala', 'ppo']),
    ([{}, {'env_id': 'Pong'}], ['CartPole-v1', 'Pong']),
    ([{}, {'env_id': 'Pong', 'algorithm': 'ppo'}], ['CartPole-v1, impala', 'Pong, ppo']),
    ([{}, {'learning_rate': 0.1}], ['learning_rate 0.001', 'learning_rate 0.1']),
    ([{}, {'total_steps': 5}], ['total_steps 1000', 'total_steps 5']),
    ([{}, {'learning_rate': 0.1}, {'hidden_size': 8}],
     ['learning_rate 0.001, hidden_size 64', 'learning_rate 0.1, hidden_size 64',
      'learning_rate 0.001, hidden_size 8']),
    ([{}, {'algorithm': 'ppo'}, {'algorithm': 'ppo', 'hidden_size': 8}],
     ['impala, hidden_size 64', 'ppo, hidden_size 64', 'ppo, hidden_size 8']),
    ([{}, {'seed': 2}], ['r0 and 1 more', 'r2 and 1 more']),
    ([{}, {}, {'algorithm': 'ppo'}],
     ['impala, r0 and 1 more', 'impala, r2 and 1 more', 'ppo'])]


def test_groups_are_labelled_with_the_settings_that_differ(group, tmp_path):
    for changes, labels in LABELS:
        assert group_labels([group(change, change | {'seed': 7}) for change in changes]) == labels
        for path in tmp_path.iterdir():
            shutil.rmtree(path)
    # Not with what differs within a group.
    groups = [group({}, {'hidden_size': 8}), group({'hidden_size': 16}, {'hidden_size': 16})]
    assert group_labels(groups) == ['r0 and 1 more', 'r2 and 1 more']


def test_runs_without_settings_are_labelled_with_their_folders(group, tmp_path):
    groups = [group({}), group({})]
    for path in tmp_path.glob('*/config.yaml'):
        path.unlink()
    groups = [[RecordedRun(run.path) for run in each] for each in groups]
    assert group_labels(groups) == ['r0', 'r1']
    assert group_labels(groups[:1]) == ['r0']
    assert environments(groups) == []
    check_group([*groups[0], *groups[1]])

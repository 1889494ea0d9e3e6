"""Groups of runs: labels from differing settings."""

import shutil
from pathlib import Path

import pytest
import yaml

from vdl_ros.rl.runs.recorded_run import (
    RecordedRun,
    check_group,
    environments,
    group_labels,
)

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

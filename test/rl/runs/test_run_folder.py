"""Run folder: exclusive to one run, safe against crashes, reads back what was written."""

import json
import math

import matplotlib.image
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from vdl_ros.common.settings import select
from vdl_ros.recipes import config_file
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.rl.runs.recorded_run import RecordedRun
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig, saved_settings
from vdl_ros.rl.runs.run_folder import RunFolder, RunFolderError

PARTS = {'config': {}, 'learner': {'agent_steps': 0}, 'progress': {}}


def row(steps, value=1.5):
    return {'agent_steps': steps, 'wall_s': 0.5, 'mean_return_100': value,
            'mean_length_100': 20.0, 'success_rate_100': 0.5, 'episodes': 3, 'steps_per_s': 10.0,
            'policy_lag_mean': 0.25, 'trajectories_lost': 0}


def steps_of(folder):
    return [each['agent_steps'] for each in folder.progress()]


@pytest.fixture(autouse=True)
def numbers(monkeypatch):
    """
    Number event files from 0 in each test.

    They are read in the order of their names: second, process, number. Within a second that is
    the order of their making only as long as the numbers have one digit; two starts of a run are
    two processes, and further apart.
    """
    monkeypatch.setattr(event_file_writer, '_global_uid', event_file_writer.AtomicCounter(0))


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'runs' / 'one'


def test_a_path_that_cannot_be_a_new_or_resumed_run_is_rejected(path):
    with pytest.raises(RunFolderError, match=rf'^resume: {path} holds no checkpoint'):
        RunFolder(path, resume=True)
    assert not path.exists()
    path.mkdir(parents=True)
    RunFolder(path)
    (path / 'thesis.tex').write_text('all of it')
    with pytest.raises(RunFolderError, match=rf'^run_dir: {path} is not empty; [^\n]*resume'):
        RunFolder(path)
    assert (path / 'thesis.tex').read_text() == 'all of it'
    file = path / 'thesis.tex'
    for resume in (False, True):
        with pytest.raises(RunFolderError, match=f'{file}'):
            RunFolder(file, resume=resume)


def test_a_node_restarted_by_its_launch_reuses_the_folder(path):
    first = RunFolder(path, launch_id='monday')
    assert not first.restarted
    assert first.load() is None
    del first
    again = RunFolder(path, launch_id='monday')
    assert again.restarted
    again.save(**PARTS)
    del again
    assert RunFolder(path, launch_id='monday').load()['progress'] == {}
    for other in ('tuesday', ''):
        with pytest.raises(RunFolderError, match='not empty'):
            RunFolder(path, launch_id=other)
    # A resuming launch makes the folder its own, so that its restarts are known too.
    assert not RunFolder(path, launch_id='tuesday', resume=True).restarted
    assert RunFolder(path, launch_id='tuesday', resume=True).restarted


def test_a_folder_is_refused_while_another_writes_it(path):
    """A launch that resumes, another one with the same id, or one with the same run_dir."""
    for launch_id in ('', 'monday'):
        # A lock is of an open file: one in this process is as good as one of another.
        other = RunFolder(path / launch_id, launch_id=launch_id)
        other.save(**PARTS)
        with pytest.raises(RunFolderError, match=f'^resume: {other.path} is in use by another p'):
            RunFolder(other.path, resume=True)
        if launch_id:
            with pytest.raises(RunFolderError, match=f'^run_dir: {other.path} is in use by anoth'):
                RunFolder(other.path, launch_id=launch_id)
        other._lock.close()
        again = RunFolder(other.path, resume=True)
        assert again.load() is not None
        again._lock.close()


def test_settings_are_written_as_yaml(path):
    config = {'env_id': 'CartPole-v1', 'learning_rate': 1e-05, 'stop_at_return': 1e9,
              'deterministic': True, 'num_envs': 3}
    # The file can start another run, in another folder.
    RunFolder(path).open({**config, 'run_dir': ''}, 0)
    found = yaml.safe_load((path / 'config.yaml').read_text())
    assert list(map(repr, found.items())) == list(map(repr, config.items()))


def test_resume_drops_progress_after_the_checkpoint(path):
    folder = RunFolder(path, launch_id='x')
    folder.open({}, 0)
    for steps in (100, 200, 300, 400):
        folder.report(row(steps), {'a': float(steps)})
    del folder
    again = RunFolder(path, launch_id='x')
    again.open({}, 250)
    assert again.progress() == [row(100), row(200)]
    again.report(row(260), {'a': 260.0})
    again.close({'env_id': 'x'})
    assert steps_of(again) == [100, 200, 260]
    events = EventAccumulator(str(path), purge_orphaned_data=True)
    events.Reload()
    steps = [event.step for event in events.Scalars('a')]
    assert steps[-1] == 260
    assert 400 not in steps


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_events_are_written_again_after_a_full_disk(path, monkeypatch):
    folder = RunFolder(path)
    folder.open({}, 0)
    folder.report(row(100), {'a': 1.0})
    broken, worker = folder._events, folder._events.file_writer.event_writer._async_writer._worker

    def full(*args):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(worker._record_writer, 'write', full)

    def fill():
        # The thread of the events fails a moment after the call.
        for steps in range(101, 100_000):
            folder.report(row(steps), {'a': 2.0})
            worker.join(0.01)

    with pytest.raises(OSError, match='No space left'):
        fill()
    folder.report(row(100_001), {'a': 3.0})
    assert folder._events is not broken
    folder.close({'env_id': 'x'})
    series = RecordedRun(path).series('steps', 'a')
    assert list(series.y)[-1] == 3.0


def test_a_restart_from_step_0_drops_all_progress_and_events(path):
    """The only checkpoint is that of step 0, so no row is kept."""
    folder = RunFolder(path, launch_id='x')
    folder.open({}, 0)
    for steps in (100, 200, 300):
        folder.report(row(steps), {'a': float(steps)})
    folder.close({'env_id': 'x'})
    again = RunFolder(path, launch_id='x')
    again.open({}, 0)
    assert again.progress() == []
    for steps in (50, 120):
        again.report(row(steps), {'a': float(-steps)})
    again.close({'env_id': 'x'})
    assert steps_of(again) == [50, 120]
    series = RecordedRun(path).series('steps', 'a')
    assert (list(series.x), list(series.y)) == ([50, 120], [-50, -120])


def test_a_run_without_the_columns_of_lengths_and_success_can_be_resumed(path):
    folder = RunFolder(path, launch_id='x')
    (path / 'progress.csv').write_text(
        'agent_steps,wall_s,mean_return_100,episodes,steps_per_s,policy_lag_mean,'
        'trajectories_lost\n100,0.5,1.5,3,10.0,0.25,0\n300,0.5\n')
    folder.open({}, 1000)
    folder.report(row(1001), {})
    old, new = folder.progress()
    assert math.isnan(old['mean_length_100'])
    assert math.isnan(old['success_rate_100'])
    assert row(100) == old | {'mean_length_100': 20.0, 'success_rate_100': 0.5}
    assert new == row(1001)


def test_settings_of_one_start_are_not_resumed(tmp_path):
    """A run of a host with a GPU can go on without; a synchronous one waits for its own actors."""
    RunFolder(tmp_path / 'a').open({'seed': 3, 'device': 'cuda', 'num_learners': 2}, 0)
    assert saved_settings(tmp_path / 'a') == {'seed': 3}
    RunFolder(tmp_path / 'b').open({'seed': 3, 'num_actors': 4}, 0)
    for given, actors in (
            ({}, 2), ({'num_actors': 7}, 7), ({'num_actors': 5, 'num_learners': 2}, 3),
            ({'num_actors': 5, 'num_learners': 2, 'learner_rank': 1}, 2)):
        values = config_file.resolve(given, saved_settings(tmp_path / 'b'))
        assert select(RunConfig, values).own_actors == actors, given
        assert values['seed'] == 3, given


def test_close_writes_a_curve_and_a_summary_without_bare_nan(path):
    folder = RunFolder(path)
    folder.open({}, 0)
    folder.report(row(100), {'a': 1.0})
    folder.close({'env_id': 'x', 'mean_return_100': float('nan'), 'policy_lag': {
        'mean': 2.0, 'max': float('inf')}})

    def refuse(word):
        raise AssertionError(word)

    found = json.loads((path / 'summary.json').read_text(), parse_constant=refuse)
    assert found == {'env_id': 'x', 'mean_return_100': None,
                     'policy_lag': {'mean': 2.0, 'max': None}}
    assert matplotlib.image.imread(path / 'curve.png').ndim == 3
    assert not list(path.glob('*.partial'))


def test_the_last_checkpoints_are_kept_under_their_steps(tmp_path):
    run = RunFolder(tmp_path / 'run', config=RunFolderConfig(keep_checkpoints=2))
    (run.path / 'checkpoint-mine.pt').write_text('x')
    for steps in (0, 500, 20, 1000, 1000):
        run.save(config={}, progress={}, learner={'agent_steps': steps})
    assert load_checkpoint(run.checkpoint)['learner']['agent_steps'] == 1000
    kept = {path.name: path for path in run.path.glob('checkpoint-*.pt')}
    assert kept.keys() == {'checkpoint-20.pt', 'checkpoint-1000.pt', 'checkpoint-mine.pt'}
    assert load_checkpoint(kept['checkpoint-20.pt'])['learner']['agent_steps'] == 20

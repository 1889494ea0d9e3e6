"""Run folder: exclusive to one run, safe against crashes, reads back what was written."""

import json
import os

import matplotlib.image
import numpy as np
import pytest
import yaml

from vdl_ros.common.files import in_use
from vdl_ros.rl.plots import curve_plot
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint
from vdl_ros.rl.runs.recorded_run import RecordedRun
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig
from vdl_ros.rl.runs.run_folder import RunFolder, RunFolderError, load_array_file, save_array_file

PARTS = {'config': {}, 'learner': {'agent_steps': 0}, 'progress': {}}


def row(steps, value=1.5):
    return {'agent_steps': steps, 'wall_s': 0.5, 'mean_return_100': value,
            'mean_length_100': 20.0, 'success_rate_100': 0.5, 'episodes': 3, 'steps_per_s': 10.0,
            'policy_lag_mean': 0.25, 'trajectories_lost': 0}


def steps_of(folder):
    return [each['agent_steps'] for each in folder.progress()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'runs' / 'one'


def test_a_path_that_cannot_be_a_new_or_resumed_run_is_rejected(path):
    with pytest.raises(RunFolderError, match=rf'^resume: {path} holds no checkpoint'):
        RunFolder(path, resume=True)
    assert not path.exists()
    path.mkdir(parents=True)
    # As of a run that could not start.
    for launch_id in ('one', 'other'):
        RunFolder(path, launch_id=launch_id)
        assert [each.name for each in path.iterdir()] == ['.launch_id']
    (path / 'thesis.tex').write_text('all of it')
    with pytest.raises(RunFolderError, match=rf'^run_dir: {path} is not empty; name another$'):
        RunFolder(path)
    assert (path / 'thesis.tex').read_text() == 'all of it'
    file = path / 'thesis.tex'
    for resume in (False, True):
        with pytest.raises(RunFolderError, match=f'{file}'):
            RunFolder(file, resume=resume)


def test_a_folder_with_a_link_that_leads_out_of_it_is_not_written(path, tmp_path):
    path.mkdir(parents=True)
    (path / 'checkpoint.pt').touch()
    (tmp_path / 'thesis.tex').write_text('all of it')
    (path / '.launch_id').symlink_to(tmp_path / 'thesis.tex')
    with pytest.raises(ValueError, match='.launch_id is a link that leads out of it'):
        RunFolder(path, resume=True)
    assert (tmp_path / 'thesis.tex').read_text() == 'all of it'


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
    # A lock is of an open file: one in this process is as good as one of another.
    other = RunFolder(path, launch_id='monday')
    other.save(**PARTS)
    for options, name in (({'resume': True}, 'resume'), ({'launch_id': 'monday'}, 'run_dir')):
        with pytest.raises(RunFolderError, match=f'^{name}: {path} is in use by another process'):
            RunFolder(path, **options)
    other._lock.close()
    assert RunFolder(path, resume=True).load() is not None


def test_settings_are_written_as_yaml(path):
    config = {'env_id': 'CartPole-v1', 'learning_rate': 1e-05, 'stop_at_return': 1e9,
              'deterministic': True, 'num_envs': 3}
    # The file can start another run, in another folder.
    RunFolder(path).open({**config, 'run_dir': ''}, 0)
    found = yaml.safe_load((path / 'config.yaml').read_text())
    assert list(map(repr, found.items())) == list(map(repr, config.items()))


@pytest.mark.parametrize('kept', [250, 0])
def test_resume_drops_progress_and_events_after_the_checkpoint(path, kept):
    """At step 0, where the only checkpoint is the first one, no row is kept."""
    folder = RunFolder(path, launch_id='x')
    folder.open({}, 0)
    for steps in (100, 200, 300, 400):
        folder.report(row(steps), {'a': float(steps)})
    folder.close({'env_id': 'x'})
    events, = path.glob('events*')
    # The clock was wrong.
    events.rename(path / 'events.out.tfevents.9000000000.host.1.0')
    (path / 'replay-400.npz.partial').touch()  # of a process that was killed
    again = RunFolder(path, launch_id='x')
    again.open({}, kept)
    assert not list(path.glob('*.partial'))
    before = [100, 200] if kept else []
    assert again.progress() == [row(steps) for steps in before]
    again.report(row(260), {'a': -260.0})
    again.close({'env_id': 'x'})
    assert steps_of(again) == [*before, 260]
    series = RecordedRun(path).series('steps', 'a')
    assert (list(series.x), list(series.y)) == ([*before, 260], [*before, -260])


def test_actors_are_assigned_to_learners_in_turn():
    for given, actors in (({'num_actors': 7}, 7), ({'num_actors': 5, 'num_learners': 2}, 3),
                          ({'num_actors': 5, 'num_learners': 2, 'learner_rank': 1}, 2)):
        assert RunConfig(**given).own_actors == actors, given


def test_close_writes_a_curve_and_a_summary_without_bare_nan(path):
    folder = RunFolder(path)
    folder.open({}, 0)
    folder.report(row(100), {'a': 1.0})
    folder.close({'env_id': 'x', 'mean_return_100': float('nan'), 'policy_lag': {
        'mean': 2.0, 'max': float('inf')}})
    assert json.loads((path / 'summary.json').read_text()) == {
        'env_id': 'x', 'mean_return_100': None, 'policy_lag': {'mean': 2.0, 'max': None}}
    assert matplotlib.image.imread(path / 'curve.png').ndim == 3
    assert not list(path.glob('*.partial'))


def test_a_curve_that_cannot_be_drawn_is_a_warning(path, monkeypatch):
    said = []
    monkeypatch.setattr(curve_plot, 'draw_curve', lambda *_, title: [][0])
    folder = RunFolder(path)
    folder.open({}, 0, said.append)
    folder.close({'env_id': 'x'})
    warning, = said
    assert warning.startswith(f'{path}/curve.png is not drawn: IndexError: list index out of')
    assert not in_use(path)


def test_the_last_checkpoints_are_kept_under_their_steps(tmp_path):
    run = RunFolder(tmp_path / 'run', config=RunFolderConfig(keep_checkpoints=2))
    (run.path / 'checkpoint-mine.pt').write_text('x')
    # Set back from 500 to 0; the clock is set back all the time.
    for steps in (0, 500, 20, 1000, 1000):
        run.save(config={}, progress={}, learner={'agent_steps': steps})
        os.utime(run.checkpoint, (10**9 - steps,) * 2)
    assert load_checkpoint(run.checkpoint)['learner']['agent_steps'] == 1000
    kept = {path.name: path for path in run.path.glob('checkpoint-*.pt')}
    assert kept.keys() == {'checkpoint-20.pt', 'checkpoint-1000.pt', 'checkpoint-mine.pt'}
    assert load_checkpoint(kept['checkpoint-20.pt'])['learner']['agent_steps'] == 20


def test_a_replay_without_room_costs_only_the_replay(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / 'run')
    run.save(replay={'a': np.ones(3)}, **PARTS)

    def full(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('vdl_ros.rl.runs.run_folder.save_array_file', full)
    with pytest.raises(OSError, match='No space'):
        run.save(replay={'a': np.ones(3)}, config={}, progress={}, learner={'agent_steps': 9})
    assert run.saved_steps == load_checkpoint(run.checkpoint)['learner']['agent_steps'] == 9


def test_a_damaged_or_malicious_replay_is_one_line(tmp_path):
    path = tmp_path / 'x.npz'
    array = np.arange(12.0).reshape(3, 4)
    save_array_file(path, {'a': array, 'b': np.array(5)})
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[data.index(array.tobytes()) + 20] ^= 1

    def save_one_array():
        with path.open('wb') as file:
            np.save(file, array)

    for damage, write in (
            ('cut', lambda: path.write_bytes(data[:len(data) // 2])),
            ('flipped', lambda: path.write_bytes(flipped)),
            ('text', lambda: path.write_text('x')),
            ('one array', save_one_array),
            ('pickle', lambda: np.savez(path, a=np.array([print], object))),
            ('bomb', lambda: np.savez_compressed(path, a=np.zeros(10**6)))):
        write()
        with pytest.raises(CheckpointError) as error:
            load_array_file(path, 'replay')
        assert str(error.value).startswith(f'{path}: not a readable replay: '), damage
        assert '\n' not in str(error.value), damage

"""What TensorBoard gets reaches a tracker; one that is missing, fails or hangs ends no run."""

import sys
import threading
from unittest.mock import Mock, call

import pytest

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.runs import trackers
from vdl_ros.rl.runs.run_config import TRACKERS, RunFolderConfig
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.runs.trackers import Tracker, verify_tracker


@pytest.fixture
def wandb(monkeypatch):
    """Return as much of the library as is used; ``run`` is what it makes."""
    run = Mock(id='abc')
    fake = Mock(run=run, **{'init.return_value': run})
    monkeypatch.setitem(sys.modules, 'wandb', fake)
    monkeypatch.setattr('vdl_ros.rl.runs.run_folder.verify_tracker', lambda name: None)
    monkeypatch.setattr('vdl_ros.rl.plots.curve_plot.draw_curve', lambda *_, **__: None)
    monkeypatch.delenv('WANDB_MODE', raising=False)
    return fake


def test_a_run_and_its_resumption_are_one_run_of_the_tracker(wandb, tmp_path):
    for resume in (False, True):
        run = RunFolder(tmp_path / 'run', resume=resume, config=RunFolderConfig(tracker='wandb'))
        run.open({'seed': 3}, 0)
        run.write_scalars({'charts/SPS': 5.0, 'loss': float('nan')}, 70)
        run.save(config={}, learner={'agent_steps': 70}, progress={})
        run.close({'env_id': 'x'})
    first, second = (each.kwargs for each in wandb.init.call_args_list)
    assert (first['config'], first['mode']) == ({'seed': 3}, 'offline')
    assert (first['id'], second['id'], second['resume']) == (None, 'abc', 'allow')
    assert wandb.run.log.call_args_list == [
        call({'charts/SPS': 5.0, 'agent_steps': 70})] * 2
    wandb.run.define_metric.assert_called_with('*', step_metric='agent_steps')
    assert wandb.run.finish.call_count == 2


def log_much(folder):
    """Log more than the queue holds, and close; return the warnings."""
    lines = []
    found = Tracker('wandb', folder, 'p', {}, lines.append)
    for step in range(2000):
        found.log({'x': 1.0}, step)
    found.close()
    return lines


def test_a_tracker_that_fails_is_one_warning(wandb, tmp_path):
    wandb.run.log.side_effect = ConnectionError('no route')
    line, = log_much(tmp_path)
    assert line.startswith('tracker: wandb failed, the run goes on without it: '
                           'ConnectionError: no route')


def test_a_tracker_that_hangs_delays_nothing_but_the_end(wandb, tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, '_CLOSE_S', 0.1)
    over = threading.Event()
    wandb.run.log.side_effect = lambda *_, **__: over.wait()
    assert log_much(tmp_path) == [
        'tracker: wandb does not end within 0 s; what is left is in progress.csv and the events']
    over.set()


def test_a_tracker_that_is_not_installed_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(trackers.importlib.util, 'find_spec', lambda name: None)
    for name in TRACKERS[1:]:
        with pytest.raises(SettingError, match=f'^tracker: {name!r} is not installed: pip install '
                                               f'{name}.*, or the extra {name} of vdl_ros$'):
            RunFolder(tmp_path / 'run', config=RunFolderConfig(tracker=name))
    assert not (tmp_path / 'run').exists()
    verify_tracker('none')

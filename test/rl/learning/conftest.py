"""What the tests of training loops share: a run of a tiny learner."""

import dataclasses
import json
import threading

import pytest

from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Callbacks
from vdl_ros.rl.learning.trainer import Trainer
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.settings import TrainConfig

CONFIG = TrainConfig(unroll_length=8, hidden_size=4, batch_size=2, total_steps=400)
SETTINGS = {'env_id': 'scripted', 'algorithm': 'impala'}


@pytest.fixture(autouse=True)
def no_curve(monkeypatch):
    """Write no picture: it takes longer than the rest; test_curve_plot.py looks at it."""
    monkeypatch.setattr('vdl_ros.rl.plots.curve_plot.draw_curve',
                        lambda rows, path, *, title: path.write_text(title))


class Run:
    """One start of a run, and what it logs and publishes; call it to train."""

    def __init__(self, make_inbox, spaces, path, *, resume=False, launch_id='', changed=None,
                 periods=(1e6, 1e6), extra_scalars=dict, timers=None, num_actors=1, group=None,
                 evaluator=None, clock=None, progress=str, **config):
        self.published, self.lines, self.stop = [], [], threading.Event()
        self.config = dataclasses.replace(CONFIG, **config)
        self.learner, self.flow_stats = Learner(
            self.config, *spaces, timer=timers and timers['training'], group=group), FlowStats()
        self.inbox = make_inbox(self.flow_stats)
        self.folder = path and RunFolder(path, resume=resume, launch_id=launch_id)
        run = RunConfig(num_actors=num_actors, checkpoint_period=periods[0],
                        status_period=periods[1], stall_timeout=30.0)
        self.trainer = Trainer(
            self.learner, self.inbox, self.flow_stats, self.folder, SETTINGS | (changed or {}),
            run, Callbacks(lambda: self.publish(), self.lines.append, self.lines.append,
                           progress, extra_scalars),
            evaluator=evaluator, timers=timers, **({} if clock is None else {'clock': clock}))

    def publish(self):
        self.published.append((self.learner.version, dict(self.flow_stats.credits())))

    def __call__(self):
        return self.trainer.run(self.stop)

    @property
    def summary(self):
        return json.loads((self.folder.path / 'summary.json').read_text())


@pytest.fixture
def start(scripted, spaces, tmp_path):
    """Return a function that makes a run.

    ``inbox`` makes an inbox of FlowStats, or has the arguments of a scripted one.
    """
    def make(path=tmp_path / 'run', inbox=None, **options):
        return Run(inbox if callable(inbox) else lambda flow_stats: scripted(
            flow_stats, **(inbox or {})), spaces, path, **options)
    return make

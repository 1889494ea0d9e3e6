"""The scalars of a run in an experiment tracker: Weights & Biases, Trackio or MLflow.

Each library is imported only if it is asked for, and works in a thread of its own: a slow or
unreachable server delays no training, and what fails there is one warning. Unless the variables of
the library's own say otherwise (``WANDB_MODE``, ``MLFLOW_TRACKING_URI``), nothing leaves this
host.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vdl_ros.common.files import write_text
from vdl_ros.common.quoting import cause
from vdl_ros.common.settings import SettingError
from vdl_ros.rl.runs.run_config import NONE

# Rows of scalars that may wait.
_QUEUE = 1000
# Time that the end of a run waits for the tracker, s.
_CLOSE_S = 60.0


class _Run:
    """A run of wandb or trackio, which have the same functions."""

    def __init__(self, run: Any, run_id: str) -> None:
        self._run, self.run_id = run, run_id

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        self._run.finish()


def _wandb(folder: Path, project: str, config: Mapping[str, Any], run_id: str) -> _Run:
    import wandb
    run: Any = wandb.init(
        project=project, name=folder.name, dir=str(folder), config=dict(config),
        id=run_id or None, resume='allow' if run_id else None,
        mode=os.environ.get('WANDB_MODE', 'offline'), settings=wandb.Settings(silent=True))
    return _Run(run, str(run.id))


def _trackio(folder: Path, project: str, config: Mapping[str, Any], run_id: str) -> _Run:
    # Read when it is imported.
    os.environ.setdefault('TRACKIO_DIR', str((folder / 'trackio').resolve()))
    import trackio
    name = run_id or folder.name
    return _Run(trackio.init(
        project=project, name=name, config=dict(config), resume='allow' if run_id else 'never',
        auto_log_gpu=False, auto_log_cpu=False), name)


class _Mlflow:
    def __init__(self, folder: Path, project: str, config: Mapping[str, Any], run_id: str) -> None:
        # A folder needs no further libraries, a database does.
        os.environ.setdefault('MLFLOW_ALLOW_FILE_STORE', 'true')
        import mlflow
        uri = os.environ.get('MLFLOW_TRACKING_URI') or (folder / 'mlruns').resolve().as_uri()
        self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        if not run_id:
            experiment = self._client.get_experiment_by_name(project)
            experiment_id = (self._client.create_experiment(project) if experiment is None
                             else experiment.experiment_id)
            run_id = self._client.create_run(experiment_id, run_name=folder.name).info.run_id
            for name, value in config.items():
                self._client.log_param(run_id, name, value)
        self.run_id = run_id

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._client.log_metric(self.run_id, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self.run_id)


_BACKENDS: dict[str, Callable[[Path, str, Mapping[str, Any], str], _Run | _Mlflow]] = {
    'wandb': _wandb, 'trackio': _trackio, 'mlflow': _Mlflow}


def verify_tracker(name: str) -> None:
    """Raise a SettingError that says how to install a tracker's library, if it is missing."""
    if name != NONE and importlib.util.find_spec(name) is None:
        package = 'mlflow-skinny' if name == 'mlflow' else name
        raise SettingError(f'tracker: {name!r} is not installed: pip install {package}, or the '
                           f'extra {name} of vdl_ros')


class Tracker:
    """Sends the scalars of one run to a tracker, from a thread of its own.

    A resumed run goes on in the tracker's run, whose id is in the folder. ``warn`` is called with
    one line, from the thread, if the tracker fails.
    """

    def __init__(
        self, name: str, folder: Path, project: str, config: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        self._name, self._folder, self._project = name, folder, project
        self._config, self._warn = dict(config), warn
        self._rows: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue(_QUEUE)
        # A daemon: one that hangs must not keep the process.
        self._thread = threading.Thread(target=self._work, name='tracker', daemon=True)
        self._thread.start()

    def log(self, scalars: Mapping[str, float], agent_steps: int) -> None:
        """Send scalars that are finite; drop them if too many wait."""
        finite = {name: float(value) for name, value in scalars.items() if math.isfinite(value)}
        with contextlib.suppress(queue.Full):
            self._rows.put_nowait((finite, agent_steps))

    def close(self) -> None:
        try:
            self._rows.put(None, timeout=_CLOSE_S)
            self._thread.join(_CLOSE_S)
        except queue.Full:
            pass
        if self._thread.is_alive():
            self._warn(f'tracker: {self._name} does not end within {_CLOSE_S:.0f} s; what is left '
                       'is in progress.csv and the events')

    def _work(self) -> None:
        try:
            self._send()
        # Of somebody else's library and of its server.
        except Exception as error:
            self._warn(f'tracker: {self._name} failed, the run goes on without it: {cause(error)}')
        # Nobody is to wait for a queue that is full.
        while self._rows.get() is not None:
            pass

    def _send(self) -> None:
        file = self._folder / f'.{self._name}_run_id'
        run_id = file.read_text().strip() if file.is_file() else ''
        backend = _BACKENDS[self._name](self._folder, self._project, self._config, run_id)
        write_text(file, backend.run_id)
        while (row := self._rows.get()) is not None:
            backend.log(*row)
        backend.close()
        # For the loop in _work.
        self._rows.put(None)

"""The scalars of a run in an experiment tracker: Weights & Biases or MLflow.

Each library is imported only if it is asked for, and works in a thread of its own: a slow or
unreachable server delays no training, and what fails there is one warning. Unless the variables of
the library's own say otherwise (``WANDB_MODE``, ``MLFLOW_TRACKING_URI``), nothing leaves this
host.
"""

import contextlib
import importlib.util
import math
import os
import queue
import re
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
# The id of a tracker's run, or the name of its folder.
_ID = re.compile(r'[^./\\\x00-\x1f][^/\\\x00-\x1f]{0,254}')
# Time that the end of a run waits for the tracker, s.
_CLOSE_S = 60.0


# The id of a run; what takes its scalars and their step; what ends it.
_Backend = tuple[str, Callable[[dict[str, float], int], object], Callable[[], object]]


def _wandb(folder: Path, project: str, config: Mapping[str, Any], run_id: str) -> _Backend:
    import wandb
    run: Any = wandb.init(
        project=project, name=folder.name, dir=str(folder), config=dict(config),
        id=run_id or None, resume='allow' if run_id else None,
        mode=os.environ.get('WANDB_MODE', 'offline'), settings=wandb.Settings(silent=True))
    # Not as W&B's own step, which may not go back: an evaluation is of an older policy.
    run.define_metric('agent_steps')
    run.define_metric('*', step_metric='agent_steps')
    return (str(run.id), lambda scalars, step: run.log({**scalars, 'agent_steps': step}),
            run.finish)


def _mlflow(folder: Path, project: str, config: Mapping[str, Any], run_id: str) -> _Backend:
    # A folder needs no further libraries, a database does.
    os.environ.setdefault('MLFLOW_ALLOW_FILE_STORE', 'true')
    import mlflow
    uri = os.environ.get('MLFLOW_TRACKING_URI') or (folder / 'mlruns').resolve().as_uri()
    client: Any = mlflow.MlflowClient(tracking_uri=uri)
    if not run_id:
        experiment = client.get_experiment_by_name(project)
        experiment_id = (client.create_experiment(project) if experiment is None
                         else experiment.experiment_id)
        run_id = client.create_run(experiment_id, run_name=folder.name).info.run_id
        for name, value in config.items():
            client.log_param(run_id, name, value)

    def log(scalars: dict[str, float], step: int) -> None:
        for name, value in scalars.items():
            client.log_metric(run_id, name, value, step=step)

    return run_id, log, lambda: client.set_terminated(run_id)


_BACKENDS: dict[str, Callable[[Path, str, Mapping[str, Any], str], _Backend]] = {
    'wandb': _wandb, 'mlflow': _mlflow}


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
        if not _ID.fullmatch(run_id):
            run_id = ''  # libraries make paths of it
        run_id, log, end = _BACKENDS[self._name](self._folder, self._project, self._config, run_id)
        write_text(file, run_id)
        while (row := self._rows.get()) is not None:
            log(*row)
        end()
        # For the loop in _work.
        self._rows.put(None)

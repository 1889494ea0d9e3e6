"""Settings of what a run keeps in its folder."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['NONE', 'TRACKERS', 'RunFolderConfig']

NONE = 'none'
# See tracker.py.
TRACKERS = (NONE, 'wandb', 'trackio', 'mlflow')


@dataclass(frozen=True)
class RunFolderConfig:
    """What a run keeps in its folder beside the newest checkpoint."""

    keep_checkpoints: int = setting(
        0, 'Last checkpoints to keep as checkpoint-<steps>.pt, beside checkpoint.pt.', minimum=0,
        maximum=1_000_000)
    save_replay: bool = setting(
        False, 'Save the replay, as large as in memory, with each checkpoint (dqn and sac, one '
        'learner).')
    tracker: str = setting(
        NONE, 'Also send the scalars of TensorBoard to a tracker; by default it writes to the '
        'folder of the run.', choices=TRACKERS)
    tracker_project: str = setting('vdl_ros', 'Project in the tracker.')

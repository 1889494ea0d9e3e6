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
        0, 'Also keep this many of the last checkpoints, as checkpoint-<steps>.pt; 0: only the '
        'newest, checkpoint.pt.', minimum=0, maximum=1_000_000)
    save_replay: bool = setting(
        False, 'Save the replay with each checkpoint, so that a resumed run goes on with it; the '
        'file is as large as the replay in memory (dqn and sac, one learner).')
    tracker: str = setting(
        NONE, 'Also send what TensorBoard gets to an experiment tracker; without its own '
        'variables to say otherwise, it writes to the folder of the run.', choices=TRACKERS)
    tracker_project: str = setting('vdl_ros', 'Project of the run in the tracker.')

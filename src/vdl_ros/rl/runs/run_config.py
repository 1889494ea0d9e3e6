"""Settings of a training run: folder, actors, checkpoints, device and learners."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdl_ros.common.files import read_json, unique_name, write_text
from vdl_ros.common.plain_yaml import dump_yaml
from vdl_ros.common.settings import SettingError, setting


@dataclass(frozen=True)
class RunConfig:
    """Settings of a training run: folder, actors, checkpoints, device and learners."""

    run_dir: str = setting('', 'Folder of the run; empty: runs/<environment>-<time>-<random>.')
    resume: str = setting('', 'Folder of a run to continue, with its settings and random state.')
    init: str = setting(
        '', 'Checkpoint with the first weights of a new run; without env_id and algorithm with '
        'the settings of its run.')
    relearn: bool = setting(
        False, 'Learn from a bag, which a player sends, until its end; the argument bag of '
        'train.launch.py sets it.')
    video: bool = setting(False, "Record the policy at the end, to video.mp4 in the run's folder.")
    num_actors: int = setting(2, 'Number of actors.', minimum=1, maximum=256)
    checkpoint_period: float = setting(
        60.0, 'Time between checkpoints.', minimum=0.1, maximum=1e6, unit='s')
    status_period: float = setting(
        1.0, 'Time between lines of progress.', minimum=0.1, maximum=1e4, unit='s')
    stall_timeout: float = setting(
        60.0, 'After this without a trajectory the learner names the actors it waits for; a '
        'synchronous run goes on without them.', minimum=0.1, maximum=1e6, unit='s')
    device: str = setting(
        'auto', 'Device of the learners; auto: CUDA if PyTorch finds it.',
        choices=('auto', 'cpu', 'cuda'))
    learner_threads: int = setting(
        0, 'CPU threads of the learner; 0: 1, for images as many as a trial finds fastest.',
        minimum=0, maximum=256)
    num_learners: int = setting(
        1, 'Learners, each with a share of the actors and batch_size unrolls in an update.',
        minimum=1, maximum=64)
    learner_rank: int = setting(
        0, 'Rank of this learner; 0 has the settings, publishes the policy and writes the run.',
        minimum=0, maximum=63)
    group_address: str = setting(
        '', 'Address of learner 0, host:port; empty: a free port, if train.launch.py starts all.')
    group_timeout: float = setting(
        60.0, 'A learner that waits longer for another one leaves the group and restarts.',
        minimum=1.0, maximum=1e5, unit='s')

    @property
    def own_actors(self) -> int:
        """Actors are assigned to learners in turn."""
        return len(range(self.learner_rank, self.num_actors, self.num_learners))


def default_run_dir(env_id: str, launch_id: str = '') -> str:
    """Return runs/<environment>-<launch>; the same again for a node that its launch restarts."""
    return f'runs/{env_id.replace("/", "-")}-{launch_id or unique_name()}'


def verify_run(run: RunConfig) -> None:
    """Check settings against each other; a SettingError names both and what to change."""
    if run.init and run.resume:
        raise SettingError(f'init: {run.init!r} is not allowed with resume {run.resume!r}: a '
                           'resumed run has weights')
    if run.learner_rank >= run.num_learners:
        raise SettingError(f'learner_rank: {run.learner_rank} is not allowed: less than '
                           f'num_learners, {run.num_learners}')
    # The other learners receive num_actors from learner 0.
    if run.learner_rank == 0 and run.num_learners > run.num_actors:
        raise SettingError(
            f'num_learners: {run.num_learners} is not allowed: at most num_actors, '
            f'{run.num_actors}, since a learner without actors would block the others')
    if run.num_learners > 1:
        # With a video the others would wait for learner 0 with a time-out.
        for name in ('relearn', 'video'):
            if getattr(run, name):
                raise SettingError(f'{name}: true is not allowed with num_learners '
                                   f'{run.num_learners}: one learner')
        if not run.group_address:
            raise SettingError("group_address: '' is not allowed with num_learners "
                               f'{run.num_learners}: host:port of learner 0')
        host_and_port(run.group_address)


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(':')
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingError(f'group_address: {address!r} is not allowed: host:port, with a port '
                           'from 1 to 65535')
    return host, int(port)


NONE = 'none'
# See trackers.py.
TRACKERS = (NONE, 'wandb', 'mlflow')


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


#: The settings of a run in its folder; vdl_ros/recipes/config_file.py reads them.
CONFIG = 'config.yaml'
# What says which run it is and not how it is trained: config.yaml can start another one.
_NOT_SAVED = ('run_dir', 'resume', 'relearn', 'learner_rank', 'group_address')
#: Settings that name files which a run needs, and that it does not take from its folder: they are
#: given again at each start.
GIVEN_AGAIN = ('demonstrations', 'adversarial_checkpoint')


def save_settings(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write the settings of a run as resolved, and return those that are written."""
    saved = {name: value for name, value in settings.items() if name not in _NOT_SAVED}
    write_text(folder / CONFIG, dump_yaml(saved))
    return saved


def check_unfinished(folder: Path, total_steps: int) -> None:
    """Raise a SettingError if a run has ended by ``total_steps``, and has no steps left."""
    # An interrupted run may have none.
    summary = read_json(folder / 'summary.json')
    steps = summary.get('agent_steps')
    if (summary.get('ended_by') == 'total_steps' and isinstance(steps, int)
            and steps >= total_steps):
        raise SettingError(f'total_steps: {total_steps} is not allowed with resume: {folder} has '
                           f'made {steps} agent steps and ended; a larger number goes on')

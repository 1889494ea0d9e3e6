"""Load and save the policy of a checkpoint, with the settings of its environment and training."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import torch

from vdl_ros.attacks.attack_config import SurrogateConfig
from vdl_ros.common.opengl import check_drawing
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import select
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.video import record_episodes
from vdl_ros.recipes.config_file import of_saved
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.policy.policy import Policy, make_policy
from vdl_ros.rl.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from vdl_ros.rl.settings import TrainConfig, exploration_schedule, make_algorithm_config

# The video of a run: at most so many episodes and steps; s that the end of a run may wait for it.
_EPISODES = 5
_STEPS = 600
VIDEO_S = 20.0
# Added to the seed of the training, for other episodes than its first.
_SEED = 1000


@dataclass(frozen=True)
class SavedPolicy:
    """A policy with the settings that it was trained with.

    ``described`` is what the environment said of itself, see ``factory.describe``; {} for most.
    ``of_normalized_returns``: its values are those of ``normalize_returns``.
    """

    policy: Policy
    env: EnvConfig
    train: TrainConfig
    action_space: gymnasium.Space[Any]
    version: int
    agent_steps: int
    described: dict[str, Any]
    of_normalized_returns: bool = False

    def act(self, deterministic: bool = True) -> Act:
        return Act(self.policy, self.action_space, deterministic=deterministic)


def load_policy(path: Path, *, env_id: str = '') -> SavedPolicy:
    """Return the policy of a checkpoint.

    Args:
        env_id: required environment, or task by the environment's own description; '': any.

    Raises:
        CheckpointError: not a readable checkpoint, or of another environment or network.
    """
    found = load_checkpoint(path)
    config = found['config']
    described = config.get('environment')
    described = described if isinstance(described, dict) else {}
    if env_id and described.get('task') == env_id != config.get('env_id'):
        # A robot with the same task; this host need not have its contract.
        config |= {'env_id': env_id, 'env_kwargs': ''}
    was = config.get('env_id')
    if env_id and was != env_id:
        raise CheckpointError(f'{path}: env_id is {quoted(was)}, not {env_id!r}')
    env, train = select(EnvConfig, config), select(TrainConfig, config)
    algorithm_config = make_algorithm_config(train, config)
    spaces = factory.spaces(env)
    policy = make_policy(train, *spaces, algorithm_config)
    try:
        policy.load_state_dict(found['learner']['policy'])
        version, agent_steps = (int(found['learner'][name]) for name in ('version', 'agent_steps'))
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        # torch's first line only says that there is an error.
        reason = ' '.join(str(error).split())[:200]
        raise CheckpointError(f'{path}: not a policy for {env.env_id}: {reason}') from None
    if not all(bool(torch.isfinite(each).all()) for each in policy.state_dict().values()):
        raise CheckpointError(f'{path}: not all weights are finite')
    explore = exploration_schedule(algorithm_config, '')
    policy.exploration = torch.tensor([explore(train.total_steps)])
    return SavedPolicy(
        policy.eval(), env, train, spaces[1], version, agent_steps, described,
        of_normalized_returns=getattr(algorithm_config, 'normalize_returns', False))


def load_surrogate(config: SurrogateConfig) -> Policy | None:
    """Return the policy whose gradients an attack uses; None if it is the attacked one."""
    path = config.adversarial_checkpoint
    return load_policy(Path(path)).policy if path else None


def save_policy(checkpoint: Path, path: Path) -> None:
    """Write only what :func:`load_policy` reads: the result can be played, but not resumed."""
    found = load_checkpoint(checkpoint)
    # Other settings of the run may be folders and addresses of its machine.
    config = of_saved(found['config'])
    if 'environment' in found['config']:
        config['environment'] = found['config']['environment']
    learner = {name: found['learner'][name] for name in ('policy', 'version', 'agent_steps')}
    save_checkpoint(path, config=config, learner=learner, progress={})


def record_video(checkpoint: Path, path: Path, stop: threading.Event | None = None) -> str:
    """Record some episodes of a checkpoint's policy, its most likely actions; return what became.

    ``stop`` ends it where it is.

    Raises:
        OpenGLError: nothing can be drawn here.
        ValueError: not a readable checkpoint, or its environment has no images.
    """
    check_drawing()
    saved = load_policy(checkpoint)
    returns, steps = record_episodes(
        saved.env, saved.train.seed + _SEED, saved.act(), path, episodes=_EPISODES,
        max_steps=_STEPS, max_time=VIDEO_S, stop=stop)
    return (f'{path}: {len(returns)} episode{"s" * (len(returns) > 1)}, {steps} steps, '
            f'mean return {sum(returns) / len(returns):.4g}')

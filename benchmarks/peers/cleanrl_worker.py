"""A script of CleanRL until it ends; run by the Python of its own environment.

Its scripts write figures with TensorBoard's writer. The writer is replaced by one that reports.
"""

import runpy
import sys
from pathlib import Path
from typing import Any

import gymnasium
import torch.utils.tensorboard
from ale_py.env import AtariEnv
from peer_worker import report, returns, rom

CLONE = Path(sys.prefix) / 'clone'
# Updates of 640 steps in one pass.
GAME = ('--num-envs', '16', '--num-steps', '40', '--num-minibatches', '1', '--update-epochs', '1',
        '--total-timesteps', '1000000000')


class Writer:
    """Takes the scalars that a script writes; reports at each update."""

    def __init__(self, folder: str):
        pass

    def add_text(self, name: str, text: str) -> None:
        """Ignore the settings."""

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        """Take the return of an episode; report at the last scalar of an update."""
        if name == 'charts/episodic_return':
            returns.append(float(value))
        elif name == 'charts/SPS':
            report(step)

    def close(self) -> None:
        """Close nothing."""


def main() -> None:
    env_id, seed = sys.argv[1:]
    torch.utils.tensorboard.SummaryWriter = Writer  # type: ignore[misc, assignment]
    script, words = 'ppo.py', []
    if env_id.startswith('ALE/'):
        script, words = 'ppo_atari.py', [*GAME]
        gymnasium.register(env_id, lambda **_: AtariEnv(
            game=rom(env_id), frameskip=1, repeat_action_probability=0.0,
            max_num_frames_per_episode=108_000))
    elif env_id not in gymnasium.registry:
        # Of Gymnasium 0.29, with the same dynamics.
        env_id = env_id.replace('-v3', '-v2')
    sys.path.insert(0, str(CLONE))
    sys.argv = [script, '--env-id', env_id, '--seed', seed, '--no-cuda', *words]
    runpy.run_path(str(CLONE / 'cleanrl' / script), run_name='__main__')


if __name__ == '__main__':
    main()

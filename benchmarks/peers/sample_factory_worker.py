"""APPO of Sample Factory until it is ended; run by the Python of its own environment."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import atari
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

# Two workers of 16 games, trajectories of 20 steps, updates of 640 steps in one pass.
SETTINGS = {
    'algo': 'APPO', 'device': 'cpu', 'num_workers': 2, 'num_envs_per_worker': 16,
    'worker_num_splits': 2, 'rollout': 20, 'batch_size': 640, 'num_batches_per_epoch': 1,
    'num_epochs': 1, 'use_rnn': False, 'encoder_conv_architecture': 'convnet_atari',
    'env_frameskip': 1, 'obs_subtract_mean': 0.0, 'obs_scale': 255.0,
    'train_for_env_steps': 10**9, 'save_every_sec': 10**6}


class Report(AlgoObserver):  # type: ignore[misc]
    """Reports each update."""

    def on_training_step(self, runner: Runner, training_iteration_since_start: int) -> None:
        """Report the steps that the learner has learned from."""
        atari.report(runner.env_steps.get(0, 0))


def make(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """Return a game for one of the workers."""
    return atari.make(name)


def main() -> None:
    """Train."""
    env_id = sys.argv[1]
    register_env(env_id, make)
    # At its end other processes of the training still write there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [f'--env={env_id}', f'--train_dir={folder}', '--experiment=bench',
                 *(f'--{name}={value}' for name, value in SETTINGS.items())]
        parser, _ = parse_sf_args(words)
        _, runner = make_runner(parse_full_cfg(parser, words))
        runner.register_observer(Report())
        runner.init()
        runner.run()


if __name__ == '__main__':
    main()

"""APPO of Sample Factory until it is ended; run by the Python of its own environment."""

import sys
import tempfile
from typing import Any

import gymnasium
from peer_worker import make_game, report
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

# Two workers, updates in one pass.
SETTINGS = {
    'algo': 'APPO', 'device': 'cpu', 'num_workers': 2, 'worker_num_splits': 2,
    'num_batches_per_epoch': 1, 'use_rnn': False, 'train_for_env_steps': 10**9,
    'save_every_sec': 10**6}
# Of 16 games each; trajectories of 20 steps, updates of 640.
GAME = {
    'num_envs_per_worker': 16, 'rollout': 20, 'batch_size': 640, 'num_epochs': 1,
    'encoder_conv_architecture': 'convnet_atari', 'env_frameskip': 1, 'obs_subtract_mean': 0.0,
    'obs_scale': 255.0}
# Sample Factory publishes no settings for CartPole; these are of the same size as the graph's.
CART_POLE = {
    'num_envs_per_worker': 16, 'rollout': 64, 'batch_size': 512, 'num_batches_per_epoch': 4,
    'num_epochs': 4, 'learning_rate': 0.001, 'reward_scale': 0.1, 'exploration_loss_coeff': 0.01,
    'encoder_mlp_layers': [64, 64], 'normalize_input': False}


class Report(AlgoObserver):  # type: ignore[misc]
    """Reports each update."""

    def on_training_step(self, runner: Runner, training_iteration_since_start: int) -> None:
        returns = runner.policy_avg_stats.get('reward', [()])[0]
        report(runner.env_steps.get(0, 0), returns)


def make(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    return make_game(name) if name.startswith('ALE/') else gymnasium.make(name)


def main() -> None:
    env_id, seed = sys.argv[1:]
    register_env(env_id, make)
    settings = SETTINGS | (GAME if env_id.startswith('ALE/') else CART_POLE) | {'seed': seed}
    # At its end other processes of the training still write there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [f'--env={env_id}', f'--train_dir={folder}', '--experiment=bench']
        for name, value in settings.items():
            words += [f'--{name}', *(map(str, value) if isinstance(value, list) else [str(value)])]
        parser, _ = parse_sf_args(words)
        _, runner = make_runner(parse_full_cfg(parser, words))
        runner.register_observer(Report())
        runner.init()
        runner.run()


if __name__ == '__main__':
    main()

"""RLlib until it is ended; run by the Python of its own environment."""

import sys
import tempfile
from typing import Any

import gymnasium
import numpy as np
import ray
from peer_worker import EPISODES, make_game, report
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env
from ray.tune.trainable import trainable


def game() -> AlgorithmConfig:
    """Return IMPALA with two workers of 16 games, and updates of 640 steps."""
    return (
        IMPALAConfig()
        .env_runners(num_env_runners=2, num_envs_per_env_runner=16, rollout_fragment_length=20)
        .training(train_batch_size_per_learner=640)
        .rl_module(model_config=DefaultModelConfig(
            conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]], head_fcnet_hiddens=[512])))


def cart_pole() -> AlgorithmConfig:
    """Return PPO with the values of RLlib's own example."""
    return (
        PPOConfig()
        .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(
            fcnet_hiddens=[32], fcnet_activation='linear', vf_share_layers=True)))


def make(config: dict[str, Any]) -> Any:
    """Return a game for one of the workers; its network needs floats, with channels last."""
    env = make_game(config['env_id'])
    return gymnasium.wrappers.TransformObservation(
        env, lambda frames: np.moveaxis(np.asarray(frames, np.float32), 0, -1) / 255.0,
        gymnasium.spaces.Box(0.0, 1.0, (84, 84, 4), np.float32))


def main() -> None:
    env_id, seed = sys.argv[1], int(sys.argv[2])
    config = cart_pole().environment(env_id)
    if env_id.startswith('ALE/'):
        register_env('game', make)
        config = game().environment('game', env_config={'env_id': env_id})
    # At its end other processes of the training still write there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # By their settings learner and workers have a core each, and wait until there are as many.
        ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        # Instead of a folder for each training in the user's home.
        trainable.DEFAULT_STORAGE_PATH = folder
        algorithm = (
            config.debugging(seed=seed)
            .reporting(metrics_num_episodes_for_smoothing=EPISODES, min_time_s_per_iteration=1)
            .build_algo())
        while True:
            runners = algorithm.train()['env_runners']
            enough = runners.get('num_episodes_lifetime', 0) >= EPISODES
            report(runners.get('num_env_steps_sampled_lifetime', 0),
                   [runners['episode_return_mean']] * EPISODES if enough else ())


if __name__ == '__main__':
    main()

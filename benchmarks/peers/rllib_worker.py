"""IMPALA of Ray RLlib until it is ended; run by the Python of its own environment."""

from __future__ import annotations

import sys
from typing import Any

import atari
import gymnasium
import numpy as np
import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

# Two workers of 16 games, trajectories of 20 steps, updates of 640 steps in one pass.
RUNNERS, ENVIRONMENTS, LENGTH = 2, 16, 20
# The network of Mnih et al. 2015: filters, kernel, stride.
FILTERS = [[32, 8, 4], [64, 4, 2], [64, 3, 1]]


def make(config: Any) -> gymnasium.Env[Any, Any]:
    """Return a game whose channels are last and from 0 to 1, as RLlib's network takes them."""
    return gymnasium.wrappers.TransformObservation(
        atari.make(config['env_id']), lambda frames: np.moveaxis(frames, 0, -1) / np.float32(255),
        gymnasium.spaces.Box(0.0, 1.0, (84, 84, 4), np.float32))


def main() -> None:
    """Train."""
    # By logical processors, of which a runner takes one.
    ray.init(num_cpus=RUNNERS + 1, include_dashboard=False, log_to_driver=False)
    register_env('game', make)
    config = IMPALAConfig().environment(
        'game', env_config={'env_id': sys.argv[1]}).env_runners(
        num_env_runners=RUNNERS, num_envs_per_env_runner=ENVIRONMENTS,
        rollout_fragment_length=LENGTH).learners(num_learners=0).training(
        train_batch_size_per_learner=RUNNERS * ENVIRONMENTS * LENGTH).rl_module(
        model_config=DefaultModelConfig(
            conv_filters=FILTERS, conv_activation='relu', head_fcnet_hiddens=[512],
            head_fcnet_activation='relu', vf_share_layers=True)).reporting(
        min_time_s_per_iteration=1)
    algorithm = config.build_algo()
    while True:
        atari.report(int(algorithm.train()['num_env_steps_sampled_lifetime']))


if __name__ == '__main__':
    main()

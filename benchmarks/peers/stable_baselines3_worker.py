"""Stable-Baselines3 until it is ended; run by the Python of its own environment."""

import sys
from functools import partial
from typing import Any

from peer_worker import make_game, report
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

ENDLESS = 10**9
# Environments, agent steps, and settings.
TASKS: dict[str, tuple[int, int, dict[str, Any]]] = {
    'CartPole-v1': (8, 100_000, {
        'n_steps': 32, 'batch_size': 256, 'n_epochs': 20, 'gamma': 0.98, 'gae_lambda': 0.8,
        'ent_coef': 0.0, 'learning_rate': LinearSchedule(0.001, 0.0, 1.0),
        'clip_range': LinearSchedule(0.2, 0.0, 1.0)}),
    'Acrobot-v1': (16, 1_000_000, {
        'n_steps': 256, 'n_epochs': 4, 'gamma': 0.99, 'gae_lambda': 0.94, 'ent_coef': 0.0}),
    'LunarLander-v3': (16, 1_000_000, {
        'n_steps': 1024, 'batch_size': 64, 'n_epochs': 4, 'gamma': 0.999, 'gae_lambda': 0.98,
        'ent_coef': 0.01})}
NORMALIZED = ('Acrobot-v1',)


class Report(BaseCallback):
    """Reports each update."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        report(self.num_timesteps, (each['r'] for each in self.model.ep_info_buffer or ()))


def game(env_id: str, seed: int) -> tuple[BaseAlgorithm, int]:
    """Return A2C of 16 processes, with 640 steps in an update."""
    envs = SubprocVecEnv([partial(make_game, env_id)] * 16)
    return A2C('CnnPolicy', envs, n_steps=40, seed=seed, device='cpu'), ENDLESS


def task(env_id: str, seed: int) -> tuple[BaseAlgorithm, int]:
    """Return PPO with the values of RL Zoo, and its number of steps."""
    num_envs, steps, settings = TASKS[env_id]
    envs = make_vec_env(env_id, n_envs=num_envs, seed=seed)
    if env_id in NORMALIZED:
        envs = VecNormalize(envs, gamma=settings['gamma'])
    return PPO('MlpPolicy', envs, seed=seed, device='cpu', **settings), steps


def main() -> None:
    env_id, seed = sys.argv[1], int(sys.argv[2])
    model, steps = (game if env_id.startswith('ALE/') else task)(env_id, seed)
    model.learn(steps, callback=Report())


if __name__ == '__main__':
    main()

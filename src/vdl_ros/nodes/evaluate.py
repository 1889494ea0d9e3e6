"""The evaluate node: plays episodes with a checkpoint's policy and prints their mean return.

With an attack it plays them twice, without and with it.

``ros2 run vdl_ros evaluate runs/<name>``. Publishes: ``episodes`` (vdl_ros/Episode). Parameters:
docs/nodes.md, or ``ros2 run vdl_ros evaluate --help``.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rclpy.node import Node

from vdl_ros.attacks.attack_config import (
    NONE,
    AttackConfig,
    SurrogateConfig,
    verify_attack,
)
from vdl_ros.attacks.attacked_env import AttackedEnv, attack_environments, warning
from vdl_ros.common.files import checkpoint_file
from vdl_ros.common.settings import SettingError, select
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import EnvStopped
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.envs.video import record_episodes
from vdl_ros.msg import Episode
from vdl_ros.play.saved_policy import load_policy, load_surrogate
from vdl_ros.rl.acting.evaluation import Evaluation, evaluate
from vdl_ros.rl.policy.policy import choose_precision
from vdl_ros.rl.settings import EvaluateConfig
from vdl_ros.ros import parameters, qos
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import EXIT_OK, run_node, set_up
from vdl_ros.ros.robots.robot_env import register
from vdl_ros.ros.training.messages import to_episode

# Steps; three seconds at 30 frames/s.
_SHORTEST_VIDEO = 100
SETTINGS = (EvaluateConfig, EnvModulesConfig, AttackConfig, SurrogateConfig, ProcessConfig)


class EvaluateNode(Node):
    """Loads a checkpoint, plays episodes and publishes them.

    Raises:
        ValueError: a parameter or a checkpoint that cannot be used.
    """

    def __init__(self) -> None:
        super().__init__('evaluate')
        given = parameters.given(self, *SETTINGS)
        parameters.declare(self, given, *SETTINGS)
        self.settings = select(EvaluateConfig, given)
        path = self.settings.checkpoint
        if not path:
            raise SettingError('checkpoint: not set: checkpoint:=runs/<name>')
        self.modules = select(EnvModulesConfig, given)
        import_modules(self.modules)
        # For its spaces; it is registered again when it is known what ends the process.
        register(self.modules, self, threading.Event())
        loaded = load_policy(Path(path), env_id=self.settings.env_id,
                             algorithm=self.settings.algorithm)
        self._saved, self._env = loaded, loaded.env
        self._attack = select(AttackConfig, given)
        self._train = verify_attack(
            self._attack, replace(loaded.train, precision='auto', inference='actor'))
        if self.is_attack:
            # Also without the attack, so that both play with the same policy.
            choose_precision(loaded.policy, self._train.precision)
        self._surrogate = load_surrogate(select(SurrogateConfig, given)) \
            if self.is_attack else None
        if self.settings.video:
            # Before the episodes: not every environment can draw.
            factory.make(self._env, self.settings.seed, num_envs=1, render=True).close()
        # More threads do not pay for such small batches.
        torch.set_num_threads(1)
        torch.manual_seed(self.settings.seed)
        self._episodes = qos.create_publisher(self, Episode, 'episodes')
        self.get_logger().info(
            f'{checkpoint_file(Path(path))}: {self._env.env_id}, {loaded.train.algorithm}, '
            f'{loaded.agent_steps:,} steps')

    @property
    def is_attack(self) -> bool:
        """Whether the policy is to be attacked."""
        return self._attack.adversarial_mode != NONE

    def play(self, stop: threading.Event, attacked: bool = False) -> Evaluation:
        """Play the episodes, under the attack if ``attacked``, and publish them."""
        settings = self.settings
        count = min(settings.num_envs, settings.episodes)
        if self._env.env_id.startswith(factory.ROBOT):
            # As many robots as there were.
            count = min(count, self._env.num_envs)
            register(self.modules, self, stop)
        # The score of a game counts all lives, also if the policy was trained with episodic_life.
        env = replace(self._env, episodic_life=False)
        with set_up():
            envs = factory.make(env, settings.seed, num_envs=count)
            if attacked:
                envs = attack_environments(
                    envs, self._attack, self._train, settings.seed, self._surrogate)
        act = self._saved.act(settings.deterministic)
        if isinstance(envs, AttackedEnv):
            envs.follow(self._saved.policy, lambda: act.state)
            if text := warning(self._attack, envs):
                self.get_logger().warning(text)
        try:
            result = evaluate(envs, act, settings.episodes, settings.seed, stop)
        finally:
            envs.close()
        for episode in result.episodes:
            self._episodes.publish(to_episode(
                episode, stamp=self.get_clock().now(),
                actor_id=self.get_fully_qualified_name(), policy_version=self._saved.version))
        return result

    def record(self, path: Path) -> None:
        """Record a video of one episode, of more where one is over in a moment."""
        with set_up():
            returns, length = record_episodes(
                self._env, self.settings.seed, self._saved.act(self.settings.deterministic), path,
                min_steps=_SHORTEST_VIDEO)
        count = '' if len(returns) == 1 else f'{len(returns)} episodes, '
        self.get_logger().info(f'{path}: {count}{length} steps, '
                               f'{"mean " if count else ""}return {np.mean(returns):g}')


def play(node: EvaluateNode, stop: threading.Event) -> int:
    """Play, log the results, record a video."""
    try:
        result = node.play(stop)
    except EnvStopped:
        return EXIT_OK
    if not result.returns:
        return EXIT_OK
    report(node, result)
    if node.is_attack and not stop.is_set():
        attacked = node.play(stop, attacked=True)
        if attacked.returns:
            report(node, attacked, 'attacked: ')
            node.get_logger().info(
                f'adversary: l2 {attacked.adversary_l2:.6g}, '
                f'{attacked.injects} of {sum(attacked.lengths)} observations perturbed '
                f'({attacked.injects / sum(attacked.lengths):.0%}), '
                f'return lost {result.mean - attacked.mean:.2f}')
    if node.settings.video and not stop.is_set():
        node.record(Path(node.settings.video))
    return EXIT_OK


def report(node: EvaluateNode, result: Evaluation, what: str = '') -> None:
    """Log the results of an evaluation."""
    # Where the environment says so.
    known = [each.success for each in result.episodes if each.success is not None]
    success = f', success {sum(known) / len(known):.0%}' if known else ''
    # One episode has no interval.
    interval = '' if math.isnan(result.interval) else (
        f'95 % of the mean +-{result.interval:.2f}, ')
    node.get_logger().info(
        f'{what}{len(result.returns)} episodes: mean {result.mean:.2f}, std {result.std:.2f}, '
        f'{interval}from {min(result.returns):g} to {max(result.returns):g}, '
        f'length {sum(result.lengths) / len(result.lengths):.1f}{success}')
    if result.reaction_time_ms:
        figures = result.reaction_time_ms
        node.get_logger().info(
            f'reaction time {figures["mean"]:.0f} ms (p50 {figures["p50"]:.0f}, p99 '
            f'{figures["p99"]:.0f}), {result.late_actions} late actions')


def main(args: Sequence[str] | None = None) -> int:
    """Run the node; a first argument that is no option is the checkpoint."""
    words = list(sys.argv[1:] if args is None else args)
    if words and not words[0].startswith('-'):
        # Quoted for YAML, of which a parameter's value is.
        words[:1] = ['--ros-args', '-p', f'checkpoint:={json.dumps(words[0])}', '--']
    return run_node('evaluate', EvaluateNode, play, SETTINGS, words)


if __name__ == '__main__':
    raise SystemExit(main())

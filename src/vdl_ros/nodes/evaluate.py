"""The evaluate node: plays episodes with a checkpoint's policy and prints their mean return.

With an attack, or another checkpoint, it plays them twice and compares the results:
``ros2 run vdl_ros evaluate runs/<name>``.
"""

import json
import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vdl_ros.attacks.attack_config import NONE, AttackConfig, SurrogateConfig, verify_attack
from vdl_ros.attacks.attacked_env import AttackedEnv, attack_environments, warning
from vdl_ros.common.children import telling
from vdl_ros.common.command_line import EXIT_INTERRUPTED
from vdl_ros.common.files import atomic_file, checkpoint_file
from vdl_ros.common.settings import SettingError
from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import ROBOT, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.envs.video import record_episodes
from vdl_ros.play.saved_policy import load_policy, load_surrogate
from vdl_ros.rl.acting.evaluation import Evaluation, difference, evaluate
from vdl_ros.rl.policy.policy import choose_precision
from vdl_ros.rl.settings import EvaluateConfig
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.process import EXIT_OK, set_up
from vdl_ros.ros.robots.robot_env import register
from vdl_ros.ros.training.messages import to_episode

# Three seconds at 30 frames/s.
_MIN_VIDEO_STEPS = 100


class EvaluateNode(BaseNode):
    """Loads a checkpoint, plays episodes and publishes them."""

    NAME = 'evaluate'
    SETTINGS = (EvaluateConfig, EnvModulesConfig, AttackConfig, SurrogateConfig)
    ENDS_WITHIN_S = 8.0

    def __init__(self) -> None:
        super().__init__()
        self._config = self.settings(EvaluateConfig)
        path = self._config.checkpoint
        if not path:
            raise SettingError('checkpoint: not set: checkpoint:=runs/<name>')
        self._modules = self.settings(EnvModulesConfig)
        import_modules(self._modules)
        # For its spaces; it is registered again when it is known what ends the process.
        register(self._modules, self.get_namespace(), threading.Event())
        loaded = load_policy(Path(path))
        self._other = load_policy(
            Path(against), env_id=loaded.env.env_id) if (against := self._config.against) else None
        self._saved, self._env = loaded, replace(
            loaded.env, time_limit=self._config.time_limit or loaded.env.time_limit)
        self._attack = self.settings(AttackConfig)
        self._train = verify_attack(
            self._attack, replace(loaded.train, precision='auto', inference='actor'))
        if self.is_attack and self._other:
            raise SettingError(f'against: {against!r} is not allowed with an attack')
        if self.is_attack:
            # Also without the attack, so that both play with the same policy.
            choose_precision(loaded.policy, self._train.precision)
        self._surrogate = load_surrogate(self.settings(SurrogateConfig)) \
            if self.is_attack else None
        if self._config.video:
            # Before the episodes: not every environment can draw.
            factory.make(self._env, self._config.seed, num_envs=1, render=True).close()
        # More threads do not pay for such small batches.
        torch.set_num_threads(1)
        torch.manual_seed(self._config.seed)
        self._episodes = self.pub('episodes')
        self.get_logger().info(
            f'{checkpoint_file(Path(path))}: {self._env.env_id}, {loaded.train.algorithm}, '
            f'{loaded.agent_steps:,} steps')

    @property
    def is_attack(self) -> bool:
        return self._attack.adversarial_mode != NONE

    def play(self, stop: threading.Event, before: Evaluation | None = None) -> Evaluation:
        """Play, publish and report the episodes.

        If there is a result before, it is by the other checkpoint, or under the attack.
        """
        settings, saved = self._config, self._saved
        if before and self._other:
            saved = self._other
        count = min(settings.num_envs, settings.episodes)
        if self._env.env_id.startswith(ROBOT):
            # As many robots as there were.
            count = min(count, self._env.num_envs)
            register(self._modules, self.get_namespace(), stop)
        # The score of a game counts all lives, also if the policy was trained with episodic_life.
        env = replace(self._env, episodic_life=False)
        with set_up():
            envs = factory.make(env, settings.seed, num_envs=count, same_step=not self.is_attack)
            if before and self.is_attack:
                envs = attack_environments(
                    envs, self._attack, self._train, settings.seed, self._surrogate)
        act = saved.act(settings.deterministic)
        if isinstance(envs, AttackedEnv):
            envs.follow(saved.policy, act.next_state)
            if text := warning(self._attack, envs):
                self.get_logger().warning(text)
        try:
            # The environment of a file may fail at any step.
            with set_up():
                result = evaluate(envs, act, settings.episodes, settings.seed, stop,
                                  tell=self.get_logger().info)
            for episode in result.episodes:
                self._episodes.publish(to_episode(
                    episode, stamp=self.get_clock().now(),
                    actor_id=self.get_fully_qualified_name(), policy_version=saved.version))
            if (count := len(result.episodes)) < settings.episodes:
                self.get_logger().warning(
                    f'interrupted after {count:,} of {settings.episodes:,} episodes')
            if result.returns:
                self._report(result, before)
        finally:
            # After the report: it may never end.
            envs.close()
        return result

    def record(self, path: Path, stop: threading.Event) -> None:
        """Record a video of one episode, of more where one is over in a moment."""
        self.get_logger().info('records a video, in real time')
        with set_up(), telling(f'{self.NAME}: records the video'):
            returns, length = record_episodes(
                self._env, self._config.seed, self._saved.act(self._config.deterministic), path,
                min_steps=_MIN_VIDEO_STEPS, stop=stop)
        count = '' if len(returns) == 1 else f'{len(returns)} episodes, '
        self.get_logger().info(f'{path}: {count}{length} steps, '
                               f'{"mean " if count else ""}return {np.mean(returns):g}')

    def run(self, stop: threading.Event) -> int:
        result, second = self.play(stop), None
        if (self.is_attack or self._other) and not stop.is_set():
            second = self.play(stop, result)
        if self._config.json and result.returns:
            self._write(Path(self._config.json), result, second)
        if self._config.video and not stop.is_set():
            try:
                self.record(Path(self._config.video), stop)
            except EnvStopped:
                self.get_logger().warning('interrupted in the video')
        return EXIT_INTERRUPTED if stop.is_set() else EXIT_OK

    def _report(self, result: Evaluation, before: Evaluation | None) -> None:
        # Where the environment says so.
        success = ''
        if found := result.success:
            low, high = found.interval
            success = f', success {found.rate:.0%} (95 %: {low:.0%} to {high:.0%})'
        # One episode has no interval.
        interval = '' if math.isnan(result.interval) else (
            f'95 % of the mean +-{result.interval:.2f}, ')
        what = '' if before is None else 'attacked: ' if self.is_attack else (
            f'{self._config.against}: ')
        lost = f', {result.lost} lost' if result.lost else ''
        change = '' if math.isnan(result.action_change) else (
            f', actions change by {result.action_change:.1%} a step')
        self.get_logger().info(
            f'{what}{len(result.returns)} episodes{lost}: mean {result.mean:.2f}, '
            f'std {result.std:.2f}, {interval}from {min(result.returns):g} to '
            f'{max(result.returns):g}, '
            f'length {sum(result.lengths) / len(result.lengths):.1f}{success}{change}')
        if figures := result.reaction_time_ms:
            self.get_logger().info(
                f'reaction time {figures["mean"]:.0f} ms (p50 {figures["p50"]:.0f}, p99 '
                f'{figures["p99"]:.0f}), {result.late_actions} late actions')
        if before and self.is_attack:
            self.get_logger().info(
                f'adversary: l2 {result.adversary_l2:.6g}, '
                f'{result.injects} of {sum(result.lengths)} observations perturbed '
                f'({result.injects / sum(result.lengths):.0%})')
        if before and (pairs := difference(before, result)):
            success = '' if pairs.success is None else (
                f', of success {100 * pairs.success[0]:+.0f} +-{100 * pairs.success[1]:.0f} %')
            self.get_logger().info(
                f'difference in {pairs.pairs} pairs of episodes: of the return {pairs.mean:+.2f} '
                f'+-{pairs.interval:.2f} (95 %){success}')

    def _write(self, path: Path, result: Evaluation, second: Evaluation | None) -> None:
        found: dict[str, Any] = {
            'checkpoint': self._config.checkpoint, 'env_id': self._env.env_id,
            'seed': self._config.seed, **result.figures()}
        if second is not None and second.returns:
            pairs = difference(result, second)
            found['attacked' if self.is_attack else 'against'] = second.figures()
            found['difference'] = pairs and pairs.figures()
        with set_up(), atomic_file(path) as partial:
            partial.write_text(json.dumps(found, indent=1) + '\n')


def main(args: Sequence[str] | None = None) -> int:
    """Run the node; a first argument that is no option is the checkpoint."""
    words = list(sys.argv[1:] if args is None else args)
    if words and not words[0].startswith('-'):
        # Quoted for YAML, of which a parameter's value is.
        words[:1] = ['--ros-args', '-p', f'checkpoint:={json.dumps(words[0])}', '--']
    return EvaluateNode.main(words)

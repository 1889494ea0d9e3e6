"""Plays a trained policy on any robot that a contract describes (docs/robots.md).

A lifecycle node: configured, it moves nothing; active, it commands the robot at the rate of the
contract, as a training does: a person first, stops, limits and silence end an episode. With
``targets`` a person says where to.
"""

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
from rclpy.executors import Executor
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from vdl_ros.common.consent import STOOD_STILL, StandstillDetector
from vdl_ros.common.settings import SettingError
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.play.external_policy import make_measured_task, without_observed_images
from vdl_ros.play.onnx_policy import ActionError
from vdl_ros.play.robot_policy import RobotPolicy, open_robot_policy
from vdl_ros.rl.acting.evaluation import Played, Success, play
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.robots.task import Task, make_task, task_of, tells_success, with_arguments
from vdl_ros.ros.base_node import Diagnostics, Health
from vdl_ros.ros.managed_node import ManagedNode
from vdl_ros.ros.node_settings import ProcessConfig, RobotPolicyConfig
from vdl_ros.ros.process import EXIT_OK, set_up
from vdl_ros.ros.robots.decisions import Decisions
from vdl_ros.ros.robots.policy_topics import PolicyTopics
from vdl_ros.ros.robots.robot_env import register_robot
from vdl_ros.ros.statistics.statistics import ReactionTimeStatistics
from vdl_ros.ros.training.messages import to_episode

# Latest steps of which late actions are told, and from which share on that is a warning.
_STEPS, _LATE = 100, 0.05
# Shorter than what counts as a pause.
_SPIN_S = 0.05


class PlayNode(ManagedNode):
    """Acts in the environment of a robot, in a thread while it is active."""

    NAME = 'play'
    SETTINGS = (RobotPolicyConfig,)
    ENDS_WITHIN_S = 8.0

    def __init__(self) -> None:
        super().__init__()
        self._config = config = self.settings(RobotPolicyConfig)
        if not config.robot:
            raise SettingError('robot: not set: robot:=NAME')
        contract = with_arguments(find_contract(config.robot), config.task_arguments)
        if config.targets and task_of(contract).aim is Task.aim:
            raise SettingError(f'targets: true is not allowed: {contract.name} takes no targets')
        if config.targets or not config.reset:
            contract = contract.without_reset()
        self._stopping, self._launch = threading.Event(), ''
        self._external: PolicyTopics | None = None
        if config.is_external:
            contract = without_observed_images(contract)
            self._external = PolicyTopics(
                self, contract, lambda: self._stopping.is_set(), config.external_horizon,
                config.external_ensemble)
            self._policy = RobotPolicy(
                self._external.act, EnvConfig(env_id=contract.env_id, num_envs=1), 'external', 0,
                has_state=True)
        self._contract = contract
        # For its spaces; it is registered again when it is known what ends it.
        self._register(self._stopping)
        if self._external is None:
            self._policy = open_robot_policy(config.path, contract)
        self._episodes = self.pub('episodes')
        self._decisions = Decisions(self, self._policy.act, contract.env_id, config.policy)
        self._reaction_time = ReactionTimeStatistics(self)
        self._late: deque[float] = deque(maxlen=_STEPS)
        self._ended = self._lost = self._steps = self._starts = 0
        self._tells_success = tells_success(contract)
        self._successes: deque[bool] = deque(maxlen=_STEPS)
        self._thread = ThreadPoolExecutor(1, 'play')
        self._standstill = StandstillDetector()
        self._playing: Future[None] | None = None
        Diagnostics(self, self._health)
        what = '' if self._external else (
            f': {self._policy.algorithm}, {self._policy.agent_steps:,} steps')
        self.get_logger().info(f'{config.path}{what}; for {self._contract.env_id}')
        if config.autostart:
            self.trigger_configure()
            self.trigger_activate()

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._standstill.update()
        if self._standstill.is_input_old:
            self.get_logger().warning(f'a request to move the robot is refused: {STOOD_STILL}')
            return TransitionCallbackReturn.FAILURE
        self._stopping = stop = threading.Event()
        if self._external is not None:
            self._external.begin()
        self._starts += 1
        # Who asks for another start asks for motion.
        launch = self.settings(ProcessConfig).launch_id
        self._launch = f'{launch or self.unique_name}-{self._starts}'
        self._playing = self._thread.submit(self._play, stop)
        return TransitionCallbackReturn.SUCCESS

    def _register(self, stop: threading.Event) -> None:
        register_robot(self._contract, self.get_namespace(), stop, self._launch,
                       follows=self._config.targets, agent=self._external,
                       make=make_measured_task if self._external else make_task)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Send the neutral action, and no other."""
        self._end()
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        return TransitionCallbackReturn.SUCCESS

    on_error = on_shutdown

    def work(self, executor: Executor, stop: threading.Event) -> int:
        while not stop.is_set():
            self._standstill.update()
            executor.spin_once(timeout_sec=_SPIN_S)
            if self._playing is not None and self._playing.done():
                with set_up():
                    self._playing.result()
                if self.state == 'active':
                    return EXIT_OK
        return EXIT_OK

    def stop(self) -> None:
        self._end()
        self._thread.shutdown()

    def _end(self) -> None:
        self._stopping.set()
        # A standstill meanwhile is one, too.
        while self._playing is not None and not self._playing.done():
            wait([self._playing], _SPIN_S)
            self._standstill.update()

    def _play(self, stop: threading.Event) -> None:
        self._register(stop)
        envs = factory.make(self._policy.env, seed=0)
        try:
            for played in play(envs, self._decisions.act, seed=0, stop=stop):
                self._count(played)
                if 0 < self._config.episodes <= self._ended:
                    return
        except ActionError as error:
            raise EnvError(f'{self._config.path}: {error}') from None
        finally:
            envs.close()

    def _count(self, played: Played) -> None:
        extras = played.step.extras
        self._reaction_time.add(extras)
        self._late.append(float(np.mean(np.asarray(extras['late_actions']) > 0)))
        self._lost += played.lost
        self._steps += 1
        # Of targets their status tells.
        for episode in () if self._config.targets else played.ended:
            # A person may say it of some.
            if not self._tells_success and not episode.success:
                episode = replace(episode, success=None)
            self._tell(episode)

    def _tell(self, episode: FinishedEpisode) -> None:
        self._ended += 1
        self._episodes.publish(to_episode(
            episode, stamp=self.get_clock().now(), actor_id=self.get_fully_qualified_name(),
            policy_version=0))
        what = rate = ''
        if episode.success is not None:
            self._successes.append(episode.success)
            found = Success(sum(self._successes), len(self._successes))
            low, high = found.interval
            what = ' success' if episode.success else ' no success'
            rate = (f'; success of the last {found.episodes}: {found.rate:.0%} (95 %: {low:.0%} '
                    f'to {high:.0%})')
        self.get_logger().info(
            f'episode {self._ended}:{what} after {episode.length} steps, return '
            f'{episode.episode_return:.2f}{rate}; {self._lost} lost')

    def _health(self) -> Health:
        late = float(np.mean(self._late)) if self._late else 0.0
        warning = f'{late:.0%} of the last {len(self._late)} actions were late' * (late > _LATE)
        return warning, {
            'robot': self._contract.env_id, 'policy': self._config.path, 'state': self.state,
            'steps': self._steps, 'episodes': self._ended, 'lost': self._lost,
            'success': f'{sum(self._successes)} of the last {len(self._successes)}',
            'late': f'{late:.1%}',
            **({'steps until an answer': max(self._external.delays, default=0)}
               if self._external else {})}


main = PlayNode.main

"""The actor: steps environments with the learner's policy and publishes trajectories.

With central inference it publishes observations instead and receives actions. The settings of
environments and policy come from the learner, modules of environments from this host.
"""

import os
import secrets
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

from rclpy.executors import Executor
from std_msgs.msg import String

from vdl_ros.attacks.attack_config import NONE, AttackConfig, SurrogateConfig, verify_attack
from vdl_ros.common.metrics import ACTING, ThreadTimer
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, select
from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import VectorEnvironment
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.msg import Policy
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.settings import ActorConfig, ReplayConfig, TrainConfig, make_algorithm_config
from vdl_ros.ros.base_node import BaseNode, Diagnostics, Health
from vdl_ros.ros.node_settings import ONLY_ACTORS, ProcessConfig
from vdl_ros.ros.process import EXIT_OK, Niceness, call_back, set_up
from vdl_ros.ros.robots.robot_env import register
from vdl_ros.ros.statistics.statistics import ReactionTimeStatistics, ThreadTimeStatistics
from vdl_ros.ros.training.actor import (
    THREADS,
    ActorContext,
    ActorMode,
    CentralInferenceMode,
    LocalInferenceMode,
    PolicyInbox,
)
from vdl_ros.ros.training.messages import policy_config, to_episode

if TYPE_CHECKING:
    from vdl_ros.attacks.attacked_env import AttackedEnv

# Waiting without a learner, after which the likely reasons are logged, s.
PATIENCE_S = 10.0


class ActorNode(BaseNode):
    """Receives policies and publishes trajectories and episodes."""

    NAME = 'actor'
    SETTINGS = (ActorConfig, EnvModulesConfig, SurrogateConfig)
    ENDS_WITHIN_S = 8.0

    def __init__(self) -> None:
        super().__init__()
        self._modules = self.settings(EnvModulesConfig)
        import_modules(self._modules)
        self._surrogate = self.settings(SurrogateConfig)
        self._settings = self.settings(ActorConfig)
        self._id = self._settings.actor_id or self.unique_name
        self._start_id = secrets.randbits(63)
        self._niceness = Niceness()
        self.timer = ThreadTimer()
        self._mode: ActorMode | None = None
        self._config: dict[str, Any] = {}
        self._sequence = 0
        self._stopping = threading.Event()
        self._episodes = self.pub('episodes')
        self._state = self.pub('actor_state')
        self._time_statistics = ThreadTimeStatistics(self, {ACTING: self.timer})
        self._reaction_time = ReactionTimeStatistics(self)
        self._attack = AttackConfig()
        self._attacked: AttackedEnv | None = None
        self._is_diagnosed = False
        # Beside another training an actor waits for the learner of its own.
        launch_id = self.settings(ProcessConfig).launch_id
        self._policies = PolicyInbox(
            self, 'policy', self._settings.credit_timeout,
            '' if launch_id.startswith(ONLY_ACTORS) else launch_id,
            on_refusal=lambda reason: self._say_state(f'refuses the policy: {reason}'))

    def act(self) -> bool:
        """Load a policy if one arrived, then act; return whether to call it again at once."""
        message, acted = self._policies.take(), False
        if message is not None:
            with self._policies.refusing(), self.timer('receive'):
                self._load(message)
                # Only now: a stranger's policy that is refused must not keep others out.
                self._policies.choice.stay_with(message.learner_id)
        if self._mode is not None:
            with self._policies.refusing(self.stop, acts=True):
                acted = self._mode.act()
        return acted

    def _load(self, message: Policy) -> None:
        config = policy_config(message)
        if config.get('relearn'):
            raise SettingError('relearn: the learner learns from a bag and needs no actors')
        if config != self._config or self._mode is None:
            self.stop()
            self._mode = self._make_mode(config)
            self._config = config
        self._mode.on_policy(message)

    def _refresh(self) -> None:
        """Load newer weights within an unroll: a robot does not wait for its end.

        For algorithms that learn from a replay, whose steps are of many policies.
        """
        assert self._mode is not None
        assert self.executor is not None
        call_back(self.executor, 0.0)
        message = self._policies.take()
        if message is None:
            return
        if self._policies.choice.is_with(message.learner_id) and (
                policy_config(message) == self._config):
            with self.timer('receive'):
                self._mode.on_policy(message)
        else:
            self._policies.put_back(message)

    def _make_mode(self, config: dict[str, Any]) -> ActorMode:
        env, train, attack = (
            select(EnvConfig, config), select(TrainConfig, config), select(AttackConfig, config))
        train = verify_attack(attack, train, self._surrogate)
        algorithm_config = make_algorithm_config(train, config)
        # A restarted actor must not repeat its first episodes.
        seed = (train.seed * 1_000_003 + zlib.crc32(self._id.encode()) + self._start_id) % 2**31
        # Before environments start threads, which inherit it.
        self._share_cores(env, train)
        self._say_state(f'makes {self._settings.num_envs or env.num_envs} x {env.env_id}')
        # An attack and a learner that chooses actions need the step into the next episode.
        acts_here = attack.adversarial_mode == NONE and train.inference == 'actor'
        with_replay = isinstance(algorithm_config, ReplayConfig)
        envs = factory.make(
            env, seed, num_envs=self._settings.num_envs or None, same_step=acts_here,
            takeovers=acts_here and with_replay)
        self._say_state(f'has made {envs.num_envs} x {env.env_id}, and resets them')
        attacked = None
        if attack.adversarial_mode != NONE:
            attacked = self._attack_environments(envs, attack, train, seed)
            envs = attacked
        frames = 1 if attacked is not None else factory.frames_per_observation(env)
        mode: ActorMode
        context = ActorContext(
            self, self._id, self._start_id, seed, THREADS, self._settings.credit_timeout,
            self.timer, self._on_acted, self._policies.choice.heard, self._stopping,
            self._reaction_time.add, say_state=self._say_state,
            **{'refresh': self._refresh} if env.in_real_time and with_replay else {})
        try:
            if train.inference == 'learner':
                mode = CentralInferenceMode(context, envs, frames, sequence=self._sequence)
            else:
                mode = LocalInferenceMode(
                    context, envs, train, algorithm_config, frames, sequence=self._sequence,
                    await_recorder=self._settings.await_recorder, attacked=attacked)
        except Exception:
            # The next policy may be refused too, and each would leave its environments.
            envs.close()
            raise
        self._attack, self._attacked = attack, attacked
        if self._attacked is not None and not self._is_diagnosed:
            self._is_diagnosed = True
            Diagnostics(self, self._health)
        state = f'acts in {envs.num_envs} x {env.env_id}'
        self._say_state(state)
        self.get_logger().info(f'{self._id} {state}')
        return mode

    def _share_cores(self, env: EnvConfig, train: TrainConfig) -> None:
        """Let a learner on this host compute first: else actors only wait for it, and cores idle.

        Not in real time, where actions would be late, nor where each step waits for the learner.
        """
        if not self._niceness.leave_cores(not env.in_real_time and train.inference == 'actor'):
            self.get_logger().warning(
                'this process has left cores to others before and may not take them back, so '
                'actions may be late: start the actor again')

    def _attack_environments(
        self, envs: VectorEnvironment, attack: AttackConfig, train: TrainConfig, seed: int,
    ) -> 'AttackedEnv':
        """Return the environments under attack, with a warning for what no camera could show."""
        # Imported here because an attack needs PyTorch, and an actor often does not.
        import torch

        from vdl_ros.attacks.attacked_env import AttackedEnv, warning
        from vdl_ros.play.saved_policy import load_surrogate
        torch.set_num_threads(THREADS)
        try:
            attacked = AttackedEnv(
                envs, attack, seed, normalized=train.normalize_observations,
                surrogate=load_surrogate(self._surrogate))
        except Exception:
            envs.close()
            raise
        if text := warning(attack, attacked):
            self.get_logger().warning(text)
        return attacked

    def _say_state(self, state: str) -> None:
        self._state.publish(String(data=f'{self._id} {state}'))

    def tell_if_alone(self) -> None:
        policy = self.resolve_topic_name('policy')
        if self.count_publishers(policy):
            return
        # It publishes once it has created an environment.
        if any(name.startswith('learner') for name in self.get_node_names()):
            self.get_logger().warning(
                'a learner has started and published no policy yet: its lines say what it does')
            return
        domain = os.environ.get('ROS_DOMAIN_ID') or '0'
        scope = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') or 'SUBNET'
        self.get_logger().warning(
            f'no learner publishes {policy} in domain '
            f'{quoted(domain)}, discovery range {quoted(scope)}; one on another host needs the '
            'same domain and the range SUBNET: ros2 run vdl_ros doctor --peer HOST')

    def _health(self) -> Health:
        """Return the attack; of a learner that had one, and was followed by one without, none."""
        mode, epsilon = self._attack.adversarial_mode, self._attack.adversarial_epsilon
        if self._attacked is None:
            return '', {'mode': mode}
        return f'attacks what the policy observes: {mode}, epsilon {epsilon:g}', {
            'mode': mode, 'epsilon': epsilon, 'observations attacked': self._attacked.perturbed}

    def _on_acted(self, episodes: list[FinishedEpisode], version: int) -> None:
        self._policies.succeeded()
        for episode in episodes:
            self._episodes.publish(to_episode(
                episode, stamp=self.get_clock().now(), actor_id=self._id, policy_version=version))

    def stop(self) -> None:
        """Close the environments: a robot must not go on after an error."""
        if self._mode is not None:
            self._sequence = self._mode.sequence
            self._mode.close()
            self._mode = None

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Act and run callbacks in turn: a policy is loaded only between two unrolls."""
        self._stopping = stop
        with set_up():
            register(self._modules, self.get_namespace(), stop,
                     self.settings(ProcessConfig).launch_id)
        self._say_state('waits for a policy')
        self.get_logger().info('waiting for a policy')
        acted, patience = False, time.monotonic() + PATIENCE_S
        try:
            while not stop.is_set():
                with self.timer.executor_wait():
                    call_back(executor, 0.0 if acted else 0.1)
                acted = self.act()
                if acted:
                    patience = time.monotonic() + PATIENCE_S
                elif time.monotonic() > patience:
                    patience = time.monotonic() + PATIENCE_S
                    self.tell_if_alone()
        except EnvStopped:
            pass  # in the middle of an unroll
        return EXIT_OK


main = ActorNode.main

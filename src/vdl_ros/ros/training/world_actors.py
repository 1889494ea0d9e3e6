"""Actors of several agents in the same worlds, each with the topics of its learner."""

import dataclasses
import secrets
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rclpy.node import Node

from vdl_ros.attacks.attack_config import NONE, AttackConfig
from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import SettingError, select
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.rl.acting.actor import SharedActors
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.ros import qos
from vdl_ros.ros.training.actor import ActorContext, LocalInferenceMode, PolicyInbox
from vdl_ros.ros.training.messages import policy_config, to_episode


class WorldAgent:
    """One agent: the policies of its learner, and its part of the worlds.

    ``config`` are the settings of its learner, {} before the first policy; ``mode``, which records
    its unrolls, is None before the worlds are made.
    """

    def __init__(self, node: Node, name: str, actor_id: str, credit_timeout: float) -> None:
        self._node, self._actor_id = node, actor_id
        self.name = name
        self.policies = PolicyInbox(node, f'{name}/policy', credit_timeout)
        self.config: dict[str, Any] = {}
        self.message: Policy | None = None
        self.mode: LocalInferenceMode | None = None
        self.sequence = 0
        # Whether its learner has subscribed to its trajectories.
        self._had_learner = False
        # Whether an unroll is under way; and recorded: its learner was there at its start.
        self.has_begun = self._records = False
        self._episodes = qos.pub(node, 'episodes', name=f'{name}/episodes')

    def on_acted(self, episodes: list[FinishedEpisode], version: int) -> None:
        self.policies.succeeded()
        for episode in episodes:
            self._episodes.publish(to_episode(
                episode, stamp=self._node.get_clock().now(), actor_id=self._actor_id,
                policy_version=version))

    @property
    def is_alone(self) -> bool:
        """Whether its learner is gone; then it acts with its last policy, and records nothing."""
        # By its policy's publisher: a recorder subscribes to trajectories, too.
        has_learner = self.policies.has_publisher
        self._had_learner |= has_learner
        return self._had_learner and not has_learner

    def begin(self, *, records: bool) -> None:
        if not self.has_begun:
            self.has_begun, self._records = True, records

    def finish(self, timer: ThreadTimer) -> None:
        """Publish the unroll that is complete, if it is recorded."""
        assert self.mode is not None
        with timer('encode'):
            unroll = self.mode.actor.finish()
        self.has_begun = False
        if self._records:
            self.mode.publish(*unroll)

    def leave(self) -> None:
        if self.mode is not None:
            self.sequence = self.mode.sequence
            self.mode.close()
            self.mode = None
        self.has_begun = self._had_learner = False


class WorldActors:
    """Steps the worlds once all agents have a policy.

    The worlds wait for an agent whose learner has no credit for it, and for nobody if all learners
    are gone. ``timer`` is of the thread that calls :meth:`act`.
    """

    def __init__(
        self, node: Node, names: Sequence[str], actor_id: str, *, threads: int,
        credit_timeout: float, timer: ThreadTimer,
    ) -> None:
        self._node, self._actor_id, self._timer = node, actor_id, timer
        self._threads, self._credit_timeout = threads, credit_timeout
        self._start_id = secrets.randbits(63)
        self.agents = [WorldAgent(node, name, actor_id, credit_timeout) for name in names]
        self._shared: SharedActors | None = None
        self._close: Callable[[], None] = lambda: None
        #: Set when the process is to end; looked at before each step.
        self.stop = threading.Event()

    def act(self) -> bool:
        """Load policies that came, and step until an unroll is complete; False: it waits."""
        for agent in self.agents:
            # An unroll is of one policy; a newer one waits.
            message = None if agent.has_begun else agent.policies.take()
            if message is not None:
                with agent.policies.refusing(self._receive_again), self._timer('receive'):
                    self._on_policy(agent, message)
                    agent.policies.choice.stay_with(message.learner_id)
        if self._shared is None:
            return False
        alone = [agent.is_alone for agent in self.agents]
        if all(alone):
            return False
        if not all(agent.has_begun or is_alone or (agent.mode and agent.mode.is_ready())
                   for agent, is_alone in zip(self.agents, alone, strict=True)):
            return False
        for agent, is_alone in zip(self.agents, alone, strict=True):
            agent.begin(records=not is_alone)
        complete: list[int] = []
        with self.agents[0].policies.refusing(self._begin_again, acts=True):
            while not complete and not self.stop.is_set():
                complete = self._shared.step()
            for index in complete:
                self.agents[index].finish(self._timer)
        return bool(complete)

    def _receive_again(self, *, pause: bool = False) -> None:
        # Also those of the others: the one that cannot be used may be theirs.
        for agent in self.agents:
            agent.policies.receive_again(pause=pause)

    def _begin_again(self) -> None:
        self.close()
        self._receive_again(pause=True)

    def _on_policy(self, agent: WorldAgent, message: Policy) -> None:
        """Use a policy from the next step on; make the worlds if it is the last one missing."""
        config = policy_config(message)
        if config != agent.config or agent.mode is None:
            _check(agent.name, config)
            self.close()
            agent.config, agent.message = config, message
            if all(each.config for each in self.agents):
                self._make()
            return
        agent.message = message
        agent.mode.on_policy(message)

    def _make(self) -> None:
        """Make the worlds and the actors; ValueError: settings contradict each other."""
        envs = [select(EnvConfig, agent.config) for agent in self.agents]
        for agent, env in zip(self.agents, envs, strict=True):
            for field in dataclasses.fields(EnvConfig):
                mine, first = getattr(env, field.name), getattr(envs[0], field.name)
                if mine != first and field.name != 'bodies':
                    raise SettingError(f'{field.name}: {quoted(mine)} of {agent.name} is not '
                                       f'{quoted(first)} of {self.agents[0].name}')
        first = envs[0]
        seed = (select(TrainConfig, self.agents[0].config).seed * 1_000_003
                + zlib.crc32(self._actor_id.encode()) + self._start_id) % 2**31
        shared = factory.make_shared(first, seed, [factory.bodies(each) for each in envs])
        self._close = shared.close
        try:
            for agent, view in zip(self.agents, shared.views, strict=True):
                train = select(TrainConfig, agent.config)
                context = ActorContext(
                    self._node, self._actor_id, self._start_id, seed, self._threads,
                    self._credit_timeout, self._timer, agent.on_acted,
                    agent.policies.choice.heard, self.stop)
                agent.mode = LocalInferenceMode(
                    context, view, train, make_algorithm_config(train, agent.config),
                    factory.frames_per_observation(first), sequence=agent.sequence,
                    namespace=f'{agent.name}/')
                assert agent.message is not None
                agent.mode.on_policy(agent.message)
        except Exception:
            self.close()
            raise
        modes = [agent.mode for agent in self.agents if agent.mode is not None]
        self._shared = SharedActors([mode.actor for mode in modes],
                                    partial(self._step, shared.step))
        self._node.get_logger().info(
            f'{self._actor_id} acts in {first.num_envs} x {first.env_id} for '
            + ', '.join(f'{agent.name} ({view.num_envs} bodies)'
                        for agent, view in zip(self.agents, shared.views, strict=True)))

    def _step(self, step: Callable[[Sequence[Any]], Any], actions: Sequence[Any]) -> Any:
        with self._timer('step'):
            return step(actions)

    def close(self) -> None:
        for agent in self.agents:
            agent.leave()
        self._close()
        self._close, self._shared = lambda: None, None


def _check(name: str, config: Mapping[str, Any]) -> None:
    if config.get('inference') == 'learner':
        raise SettingError(f"inference: 'learner' of {name} is not allowed with several agents in "
                           "one world: 'actor'")
    if config.get('relearn'):
        raise SettingError(f'relearn: {name} learns from a bag and needs no actors')
    if select(AttackConfig, config).adversarial_mode != NONE:
        raise SettingError(f'adversarial_mode: not allowed with several agents in one world, but '
                           f'{name} has it')

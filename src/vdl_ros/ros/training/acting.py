"""
The two ways of an actor: with a copy of the policy, or asking the learner at every step.

Both are told of policies and asked to act, in turn, by the actor node's one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from gymnasium.vector import VectorEnv
from rclpy.node import Node

from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.msg import Action, Observation, Policy, Trajectory
from vdl_ros.rl.acting.actor import Actor
from vdl_ros.rl.acting.flow_control import Credit
from vdl_ros.rl.acting.remote_actor import RemoteActor, StepSchema
from vdl_ros.rl.algorithm_config import AlgorithmConfig
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.exploration import exploration_schedule
from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.statistics.topic_statistics import TopicStatistics
from vdl_ros.ros.training.inference_service import to_observation
from vdl_ros.ros.training.trajectories import to_trajectory

__all__ = ['Acting', 'LocalActing', 'RemoteActing']

# Called with the episodes that ended and the policy version that ended them.
Finished = Callable[[list[FinishedEpisode], int], None]


class Acting(Protocol):
    """An actor's work between two rounds of callbacks."""

    def hear(self, message: Policy) -> None:
        """
        Take over a policy.

        Raises:
            ValueError: it is malformed.
        """

    def act(self) -> bool:
        """Act if it is time; return whether there may be more to do at once."""

    def close(self) -> None:
        """Close the environments and topics."""


class LocalActing:
    """Acts whole unrolls with a copy of the policy and publishes them as trajectories."""

    def __init__(
        self, node: Node, envs: VectorEnv, train: TrainConfig, own: AlgorithmConfig,
        frames_per_observation: int, *,
        actor_id: str, start_id: int, sequence: int, seed: int, credit_timeout: float,
        finished: Finished, phases: ThreadTimer,
    ) -> None:
        """Begin with trajectory number ``sequence`` when a policy is heard."""
        self._node, self._actor_id, self._start_id = node, actor_id, start_id
        self._credit_timeout, self._finished = credit_timeout, finished
        self._phases = phases
        spaces = envs.single_observation_space, envs.single_action_space
        policy = make_policy(train, *spaces, own)
        self._actor = Actor(
            envs, policy, UnrollSchema(
                *spaces, train.unroll_length, frames_per_observation, policy.state_size),
            seed, phases, exploration_schedule(own, actor_id))
        self._credit = Credit(train.credit)
        self._credit.sequence = sequence
        self._learner_id = ''
        self._heard = time.monotonic()
        self._publisher = node.create_publisher(
            Trajectory, 'trajectories', qos.TOPICS['trajectories'])

    @property
    def sequence(self) -> int:
        """Number of the next trajectory."""
        return self._credit.sequence

    def hear(self, message: Policy) -> None:
        """
        Act by this policy from now on, as far as its credit goes.

        Raises:
            ValueError: weights of another network, or malformed ones.
        """
        self._actor.load(
            from_tensors(message.tensors), message.version, message.agent_steps)
        self._heard = time.monotonic()
        self._learner_id = message.learner_id
        used = next((credit.used for credit in message.credits
                     if credit.start_id == self._start_id), None)
        self._credit.hear(message.learner_id, used)

    def act(self) -> bool:
        """Act one unroll if there is credit for it."""
        if not self._credit.available:
            self._give_up_lost()
            return False
        if self._publisher.get_subscription_count() == 0:
            # Of several learners, the one that publishes policies is not the one that listens.
            return False
        arrays, finished = self._actor.unroll()
        version = self._actor.policy_version
        with self._phases('encode'):
            message = to_trajectory(
                arrays, stamp=self._node.get_clock().now(), actor_id=self._actor_id,
                start_id=self._start_id, sequence=self._credit.spend(),
                learner_id=self._learner_id, policy_version=version)
        with self._phases('publish'):
            self._publisher.publish(message)
            self._finished(finished, version)
        return True

    def _give_up_lost(self) -> None:
        """Give up a trajectory for lost if a learner is there and says nothing for too long."""
        now = time.monotonic()
        if not self._learner_id or now - self._heard <= self._credit_timeout:
            return
        self._heard = now
        if self._publisher.get_subscription_count() > 0:
            self._node.get_logger().warning(
                f'no policy for {self._credit_timeout:g} s: one of '
                f'{self._credit.outstanding} trajectories under way is given up')
            self._credit.write_off()

    def close(self) -> None:
        """Close the environments and the topic."""
        self._actor.close()
        self._node.destroy_publisher(self._publisher)


class RemoteActing:
    """Publishes every observation and acts as it is told."""

    # An answer takes milliseconds, unless the learner withholds it; asking again costs nothing.
    _ASK_AGAIN_S = 1.0

    def __init__(
        self, node: Node, envs: VectorEnv, frames_per_observation: int, *,
        actor_id: str, start_id: int, seed: int, finished: Finished, phases: ThreadTimer,
    ) -> None:
        """Begin to ask when a learner is heard."""
        self._node, self._actor_id, self._start_id = node, actor_id, start_id
        self._finished, self._phases = finished, phases
        space: Any = envs.single_observation_space
        self._actor = RemoteActor(envs, StepSchema(space, frames_per_observation), seed)
        self._shape = (envs.num_envs, *(envs.single_action_space.shape or ()))
        self._learner_id = ''
        self._asked: float | None = None
        self._whole = True
        self._action: Action | None = None
        self._stamp = node.get_clock().now().to_msg()
        self._publisher = node.create_publisher(
            Observation, 'observations', qos.TOPICS['observations'])
        self._statistics = TopicStatistics(node, 'actions')
        self._subscription = node.create_subscription(
            Action, 'actions', self._on_action, qos.TOPICS['actions'])

    def _on_action(self, message: Action) -> None:
        if message.start_id != self._start_id:
            return
        self._statistics.received(message.header.stamp)
        if message.learner_id == self._learner_id and message.step == self._actor.step:
            self._action = message

    def hear(self, message: Policy) -> None:
        """Ask this learner from now on."""
        if message.learner_id != self._learner_id:
            self._learner_id, self._asked, self._whole = message.learner_id, None, True

    def act(self) -> bool:
        """Act if an answer has come; ask if there is none, and again if none comes."""
        message, self._action = self._action, None
        if message is not None and message.step == self._actor.step:
            try:
                with self._phases('decode'):
                    actions = from_tensors(message.tensors)['actions']
                    if actions.shape != self._shape:
                        raise ValueError(f'actions: shape {actions.shape} is not {self._shape}')
                with self._phases('step'):
                    finished = self._actor.take(actions)
            except (KeyError, ValueError) as error:
                self._node.get_logger().warning(
                    f'actions refused: {error}', throttle_duration_sec=1.0)
            else:
                with self._phases('publish'):
                    self._finished(finished, message.policy_version)
                self._asked, self._whole = None, False
                self._stamp = self._node.get_clock().now().to_msg()
        now = time.monotonic()
        if self._learner_id and (self._asked is None or now - self._asked > self._ASK_AGAIN_S):
            self._asked = now
            with self._phases('encode'):
                observation = to_observation(
                    self._actor.observe(whole=self._whole), stamp=self._stamp,
                    actor_id=self._actor_id, start_id=self._start_id,
                    step=self._actor.step, learner_id=self._learner_id)
            with self._phases('publish'):
                self._publisher.publish(observation)
        return False

    def close(self) -> None:
        """Close the environments and topics."""
        self._actor.envs.close()
        self._statistics.close()
        self._node.destroy_publisher(self._publisher)
        self._node.destroy_subscription(self._subscription)

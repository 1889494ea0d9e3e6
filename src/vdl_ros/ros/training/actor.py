"""An actor's side of a training: it takes policies, and acts with them or by central inference."""

import contextlib
import math
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.subscription import Subscription

from vdl_ros.common.children import telling
from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.common.quoting import in_one_line, quoted
from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs.checked_vector_env import EnvError, EnvFailedError
from vdl_ros.msg import Action, LearnerBusy, Policy
from vdl_ros.rl.acting.actor import Interrupted
from vdl_ros.rl.acting.flow_control import Credit, LearnerChoice
from vdl_ros.rl.acting.make_actor import make_actor
from vdl_ros.rl.acting.remote_actor import RemoteActor, StepSchema
from vdl_ros.rl.data.episode_returns import FinishedEpisode
from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.rl.settings import AlgorithmConfig, TrainConfig, exploration_schedule
from vdl_ros.ros import qos
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.process import set_up
from vdl_ros.ros.statistics.statistics import TopicStatistics
from vdl_ros.ros.training.messages import to_observation, to_trajectory

if TYPE_CHECKING:
    from vdl_ros.attacks.attacked_env import AttackedEnv

# Longest wait for a recorder, s: an actor that starts again may come after its end.
_RECORDER_S = 30.0
#: Time between two messages of how far a slow unroll is, s, and what they contain.
TELL_S, AT = 5.0, 'is at '
# Time after a policy was refused until latched ones are received again, s.
_AGAIN_S = 5.0
# Failures of the environment of a user's own launch that end the process, unless it has acted
# without one for so long, s.
_MAX_FAILURES, _SOUND_S = 3, 60.0


class PolicyInbox:
    """Keeps the newest policy of a learner; :class:`LearnerChoice` says of which.

    After a refused policy all that are latched are received again: an environment may fail now
    and then, and a learner publishes no other policy before it has trajectories.

    Args:
        launch_id: only policies of this launch are taken, whose user has named the environment;
            '': of any.
        on_refusal: called with the reason of each.
    """

    def __init__(
        self, node: Node, topic: str, patience: float, launch_id: str = '',
        on_refusal: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.choice = LearnerChoice(patience, launch_id=launch_id)
        self.last_error, self._failures, self._acts_since = '', 0, math.inf
        self._pauses = False
        self._launch_id, self._on_refusal = launch_id, on_refusal
        self._node, self._name, self._again_at = node, topic, math.inf
        self._policy: Policy | None = None
        self._other_policy: Policy | None = None
        self._statistics = TopicStatistics(node, topic)
        self._subscription = self._subscribe()

    def _subscribe(self) -> Subscription:
        return qos.sub(self._node, 'policy', self.put, name=self._name)

    @property
    def topic(self) -> str:
        return str(self._subscription.topic_name)

    @property
    def has_publisher(self) -> bool:
        return bool(self._subscription.get_publisher_count())

    def put(self, message: Policy) -> None:
        self._statistics.received(message.header.stamp)
        if self.choice.is_over(message.learner_id):
            return
        if self._allows(message):
            self._policy, other = message, self._other_policy
            # That of another learner is kept: it may be latched, and not be published again.
            if other is not None and other.learner_id == message.learner_id:
                self._other_policy = None
            return
        # Its learner may be the new one of a training whose old one is not yet known to be gone.
        self._other_policy = message
        if self.choice.is_new(message.learner_id):
            self._node.get_logger().warning(
                f'another learner, {quoted(message.learner_id)}, publishes on '
                f'{self.topic}: its policies are ignored'
                f'{"" if self._launch_id else " while the first one is active"}; give each '
                'training a namespace or a domain')

    def _allows(self, message: Policy) -> bool:
        return self.choice.allows(
            message.learner_id, self._node.count_publishers(self._subscription.topic_name))

    def put_back(self, message: Policy) -> None:
        self._policy = self._policy or message

    def take(self) -> Policy | None:
        if time.monotonic() > self._again_at:
            self._again_at, self._pauses = math.inf, False
            self._node.destroy_subscription(self._subscription)
            self._subscription = self._subscribe()
        if self._pauses:
            return None
        if self._other_policy is not None and self._allows(self._other_policy):
            self._policy, self._other_policy = self._other_policy, None
        message, self._policy = self._policy, None
        return message

    def succeeded(self) -> None:
        """Take note that the latest policy has acted."""
        self.last_error, now = '', time.monotonic()
        self._acts_since = min(self._acts_since, now)
        if now - self._acts_since > _SOUND_S:
            self._failures = 0

    def receive_again(self, *, pause: bool = False) -> None:
        """Receive what is latched again after a while; with ``pause`` take none until then."""
        self._again_at = time.monotonic() + _AGAIN_S
        self._pauses |= pause

    @contextlib.contextmanager
    def refusing(
        self, end: Callable[[], None] = lambda: None, *, acts: bool = False,
    ) -> Iterator[None]:
        """Refuse the policy for any error of the block, and call ``end`` then.

        A message ends no process, and the environments and networks that it names may raise
        anything. The reason is logged, once although the policy is published again. Only the
        environment of the user's own launch ends it with one line, when it fails, or cannot be
        created, again and again, or whatever fails where the policy ``acts``.
        """
        try:
            yield
        except EnvStopped:
            raise
        except Exception as error:
            # A learner publishes at once when an actor that fails has sent a trajectory before.
            self.receive_again(pause=acts and not self._launch_id)
            self._acts_since = math.inf
            self._failures += acts or isinstance(error, EnvError)
            reason = in_one_line(error)
            self._on_refusal(reason)
            # Before the end of the environments, which may never come.
            if reason != self.last_error:
                self.last_error = reason
                what = ('environment failed, trying again' if isinstance(error, EnvFailedError)
                        else 'policy refused, waiting for another')
                self._node.get_logger().error(f'{what}: {reason}')
            end()
            if self._launch_id and self._failures >= _MAX_FAILURES:
                with set_up():
                    raise EnvError(reason) from error


#: CPU threads for the networks of an actor.
THREADS = 1


@dataclass(frozen=True)
class ActorContext:
    """What both modes need of their process."""

    node: Node
    actor_id: str
    start_id: int
    seed: int
    threads: int
    credit_timeout: float
    timer: ThreadTimer
    # Called after a step or unroll with its finished episodes and the policy version of its last.
    finished: Callable[[list[FinishedEpisode], int], None]
    heard: Callable[[], None]  # called when the learner has sent something besides policies
    stop: threading.Event  # set when the process is to end
    # Called with the extras of steps, by the names of rl/data/unroll.py.
    on_extras: Callable[[Mapping[str, NDArray[Any]]], None] = lambda extras: None
    refresh: Callable[[], None] = lambda: None  # called before each step of an unroll
    say_state: Callable[[str], None] = lambda state: None


class LocalInferenceMode:
    """Records unrolls with a copy of the policy and publishes them as trajectories.

    ``sequence`` is the number of the first one. ``namespace``, such as ``chaser/``, begins the
    names of topics. ``attacked`` are ``envs`` under an attack, if there is one.
    """

    def __init__(
        self, context: ActorContext, envs: VectorEnv, train: TrainConfig,
        algorithm_config: AlgorithmConfig, frames_per_observation: int, *, sequence: int = 0,
        await_recorder: bool = False, namespace: str = '', attacked: 'AttackedEnv | None' = None,
    ) -> None:
        self._context, self._compression = context, train.compression
        node = context.node
        with telling(f'{context.actor_id}: waiting for the first observation'):
            self.actor = make_actor(
                envs, train, algorithm_config, frames_per_observation, seed=context.seed,
                timer=context.timer, threads=context.threads,
                stream=zlib.crc32(namespace.encode()),
                follow=None if attacked is None else attacked.follow, exploration=(
                    exploration_schedule(algorithm_config, context.actor_id, train.freeze)))
        self._credit = Credit(train.credit, train.batch_size, context.credit_timeout)
        self._credit.sequence = sequence
        self._learner_id, self._told = '', 0.0
        self._awaits_recorder_until = (
            time.monotonic() + _RECORDER_S if await_recorder and not sequence else 0.0)
        self._publisher = qos.pub(node, 'trajectories', name=f'{namespace}trajectories')
        self._busy = qos.sub(node, 'learner_busy', self._on_busy, name=f'{namespace}learner_busy')

    def _on_busy(self, message: LearnerBusy) -> None:
        """Wait for the policy: the learner has what it needs of this actor."""
        if message.learner_id == self._learner_id:
            self._context.heard()
            if not message.start_ids or self._context.start_id in message.start_ids:
                self._credit.on_busy()

    @property
    def sequence(self) -> int:
        return self._credit.sequence

    def on_policy(self, message: Policy) -> None:
        """Load the weights and update the credit; raises ValueError for weights it cannot have."""
        self.actor.load(from_tensors(message.tensors), message.version, message.agent_steps)
        self._learner_id = message.learner_id
        used = next((credit.used for credit in message.credits
                     if credit.start_id == self._context.start_id), None)
        self._credit.on_policy(message.learner_id, used, message.version, len(message.credits))

    def act(self) -> bool:
        if not self.is_ready():
            return False
        try:
            unroll = self.actor.unroll(self._context.stop, self._before_step)
        except Interrupted:
            return False
        except EnvFailedError:
            # A Ctrl-C in a terminal reaches the processes of an environment too.
            if self._context.stop.is_set():
                return False
            raise
        self.publish(*unroll)
        return True

    def _before_step(self) -> None:
        self._context.refresh()
        if (now := time.monotonic()) - self._told >= TELL_S and (text := self.actor.progress()):
            self._told = now
            self._context.say_state(f'{AT}{text}')

    def is_ready(self) -> bool:
        if not self._credit.available:
            self._write_off_lost()
            return False
        subscribers = int(self._publisher.get_subscription_count())
        # The learner that publishes policies may not be this actor's learner.
        return subscribers > 1 or (subscribers == 1 and not self._awaits_recorder())

    def publish(self, arrays: Arrays, finished: list[FinishedEpisode]) -> None:
        version, context = self.actor.policy_version, self._context
        with context.timer('encode'):
            message = to_trajectory(
                arrays, stamp=context.node.get_clock().now(), actor_id=context.actor_id,
                start_id=context.start_id, sequence=self._credit.spend(),
                learner_id=self._learner_id, policy_version=version, compression=self._compression)
        with context.timer('publish'):
            self._publisher.publish(message)
            context.finished(finished, version)
        context.on_extras(arrays)

    def _awaits_recorder(self) -> bool:
        if self._credit.sequence or not self._awaits_recorder_until:
            return False
        if time.monotonic() < self._awaits_recorder_until:
            return True
        self._awaits_recorder_until = 0.0
        self._context.node.get_logger().warning(
            f'no recorder of the trajectories within {_RECORDER_S:g} s: it acts without')
        return False

    def _write_off_lost(self) -> None:
        if not self._credit.is_lost:
            return
        if self._publisher.get_subscription_count() == 0:
            self._credit.wait_again()
            return
        self._context.node.get_logger().warning(
            f'no credit: one of {self._credit.outstanding} pending trajectories counts as lost')
        self._credit.write_off()

    def close(self) -> None:
        self.actor.close()
        self._context.node.destroy_publisher(self._publisher)
        self._context.node.destroy_subscription(self._busy)


class CentralInferenceMode:
    """Publishes every observation and takes the actions that the learner returns."""

    # Actions come in milliseconds unless the actor has no credit.
    _RETRY_S = 1.0

    def __init__(
        self, context: ActorContext, envs: VectorEnv, frames_per_observation: int, *,
        sequence: int = 0,
    ) -> None:
        self._context, node = context, context.node
        space: Any = envs.single_observation_space
        self._actor = RemoteActor(
            envs, StepSchema(space, frames_per_observation), context.seed, sequence)
        self._shape = (envs.num_envs, *(envs.single_action_space.shape or ()))
        self._learner_id = ''
        self._requested: float | None = None
        self._whole, self._told = True, 0.0
        self._action: Action | None = None
        self._stamp = node.get_clock().now().to_msg()
        self._publisher = qos.pub(node, 'observations')
        self._statistics = TopicStatistics(node, 'actions')
        self._subscription = qos.sub(node, 'actions', self._on_action)

    @property
    def sequence(self) -> int:
        """A number that the learner has not seen of this actor."""
        return self._actor.step + 1

    def _on_action(self, message: Action) -> None:
        if message.start_id != self._context.start_id:
            return
        self._statistics.received(message.header.stamp)
        if message.learner_id == self._learner_id and message.step == self._actor.step:
            self._context.heard()
            self._action = message

    def on_policy(self, message: Policy) -> None:
        """Send observations to this learner from now on."""
        if message.learner_id != self._learner_id:
            self._learner_id, self._requested, self._whole = message.learner_id, None, True

    def act(self) -> bool:
        """Step with received actions; publish the observation, again if no actions come."""
        context = self._context
        message, self._action = self._action, None
        if message is not None and message.step == self._actor.step:
            try:
                with context.timer('decode'):
                    actions = from_tensors(message.tensors)['actions']
                    if actions.shape != self._shape:
                        raise ValueError(f'actions: shape {actions.shape} is not {self._shape}')
                with context.timer('step'):
                    finished = self._actor.take(actions)
            except EnvFailedError:
                raise
            except (KeyError, ValueError) as error:
                context.node.get_logger().warning(
                    f'actions refused: {error}', throttle_duration_sec=1.0)
            else:
                with context.timer('publish'):
                    context.finished(finished, message.policy_version)
                context.on_extras(self._actor.extras)
                self._requested, self._whole = None, False
                if (now := time.monotonic()) - self._told >= TELL_S:
                    self._told = now
                    context.say_state(f'{AT}step {self._actor.step:,}')
                self._stamp = context.node.get_clock().now().to_msg()
        now = time.monotonic()
        if self._learner_id and (self._requested is None or now - self._requested > self._RETRY_S):
            # The learner may lack the observation before, if it gave this actor up.
            whole = self._whole or self._requested is not None
            self._requested = now
            with context.timer('encode'):
                observation = to_observation(
                    self._actor.observe(whole=whole), stamp=self._stamp,
                    actor_id=context.actor_id, start_id=context.start_id,
                    step=self._actor.step, learner_id=self._learner_id)
            with context.timer('publish'):
                self._publisher.publish(observation)
        return False

    def close(self) -> None:
        self._actor.envs.close()
        self._statistics.close()
        self._context.node.destroy_publisher(self._publisher)
        self._context.node.destroy_subscription(self._subscription)


#: How an actor handles policies and steps its environments.
ActorMode = LocalInferenceMode | CentralInferenceMode

"""A learner with its topics: unrolls of actors or a bag come in, policies go out."""

import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node
from rclpy.subscription import Subscription
from std_msgs.msg import String

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.attacked_env import observed
from vdl_ros.common.metrics import CALLBACKS, INFERENCE, TRAINING, ThreadTimer
from vdl_ros.common.quoting import quoted, shown
from vdl_ros.common.settings import as_dict
from vdl_ros.demonstrations.loading import demonstrate, demonstration_inbox
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.msg import Evaluation as EvaluationMessage
from vdl_ros.msg import LearnerBusy, Observation, Trajectory
from vdl_ros.rl.acting.evaluation import Evaluation
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.device import CPU, describe
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.learning.bottleneck import HALF_A_CORE
from vdl_ros.rl.learning.central_inference import CentralInference
from vdl_ros.rl.learning.demonstrations import DemonstrationInbox
from vdl_ros.rl.learning.evaluations import EvaluatedPolicy, Result
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Callbacks
from vdl_ros.rl.learning.reporting import ended
from vdl_ros.rl.learning.thread_choice import OF_SPEED, RememberedThreads, ThreadChoice
from vdl_ros.rl.learning.trainer import Trainer
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig, default_run_dir
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.settings import AlgorithmConfig, BcConfig, TrainConfig, exploration_schedule
from vdl_ros.ros import qos
from vdl_ros.ros.base_node import Diagnostics, Health
from vdl_ros.ros.messages.tensors import num_bytes
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import make_executor, state_folder
from vdl_ros.ros.statistics.readers import TopicScalars
from vdl_ros.ros.statistics.statistics import RunScalars, ThreadTimeStatistics, TopicStatistics
from vdl_ros.ros.training.actor import AT, TELL_S
from vdl_ros.ros.training.inference_service import InferenceService
from vdl_ros.ros.training.messages import TrajectoryInbox, from_episode, memory_budget, to_policy

#: Without an actor for so long, s, it is logged what actors do.
PATIENCE_S = 20.0
_LISTEN_S = 2.0  # time for their states to arrive
# Actors that are named, and whose states are kept; characters of a state.
_NAMED, _MAX_STATES, _STATE_LENGTH = 8, 256, 300
_END_OF_BAG_S, _BUSY_S = 0.5, 1.0  # periods of the timers, s
_QUEUE = 16  # evaluations that may wait; more than are under way


class ConnectedActors:
    """Logs their number when it changes, and while there is none what each does, ever less often.

    There are to be ``expected``; updates need ``needed``. ``listen`` returns what actors say of
    themselves, which grows, and how to end it.
    """

    def __init__(
        self, logger: RcutilsLogger, expected: int, needed: int,
        listen: Callable[[], tuple[Mapping[str, str], Callable[[], object]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger, self._listen, self._clock = logger, listen, clock
        self._expected, self._needed = expected, needed
        self._count, self._wait = 0, PATIENCE_S
        self._patience = clock() + PATIENCE_S
        self._heard: tuple[Mapping[str, str], Callable[[], object]] | None = None

    def report(self, count: int) -> None:
        if count != self._count:
            self._count, self._patience = count, math.inf
            text = f'{count} {"actor is" if count == 1 else "actors are"} connected'
            if count < self._needed:
                text += (f'; each update of a synchronous training waits for {self._needed}, the '
                         'num_actors of this learner')
            self._logger.info(text)
        if (now := self._clock()) <= self._patience:
            return
        if self._heard is None:
            # Latched: those that live say it at once.
            self._heard, self._patience = self._listen(), now + _LISTEN_S
            return
        states, end = self._heard
        said = [f'{name} {state}' for name, state in sorted(states.items())[:_NAMED]]
        if said and len(states) < self._expected:
            said.append(f'{self._expected - len(states)} of {self._expected} start, hang or have '
                        'ended, as their lines say')
        end()
        self._heard, self._patience = None, now + self._wait
        self._wait *= 2
        self._logger.warning(
            'no actor is connected' + (f': {"; ".join(said)}' if said else _advice()))


def _advice() -> str:
    scope = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') or 'SUBNET'
    advice = '' if scope == 'SUBNET' else 'discovery range SUBNET, there and here, and '
    return (', nor does one say what it does: those of this launch start or hang, or have ended '
            f'as their lines say; discovery range {quoted(scope)}: actors on other hosts need '
            f'{advice}a way to this one: ros2 run vdl_ros doctor --peer HOST')


def listen_to_states(node: Node) -> tuple[Mapping[str, str], Callable[[], object]]:
    """Return what each actor of the graph does, by name, as it is received, and how to end it."""
    found: dict[str, str] = {}

    def receive(message: String) -> None:
        name, _, state = message.data.partition(' ')
        if len(found) < _MAX_STATES:
            found[shown(name)] = shown(state, _STATE_LENGTH)

    subscription = qos.sub(node, 'actor_state', receive)
    return found, lambda: node.destroy_subscription(subscription)


class EndOfBag:
    """Whether the player of a bag has ended and everything that it sent has been received."""

    def __init__(self, node: Node, topic: str) -> None:
        # As remapped.
        self._node, self._topic = node, node.resolve_topic_name(topic)
        self._has_begun = self._is_over = False
        self._received = self._received_before = 0
        self._timer = node.create_timer(_END_OF_BAG_S, self._check)

    def on_message(self) -> None:
        self._received += 1

    def is_over(self) -> bool:
        return self._is_over

    def _check(self) -> None:
        """Compare with the time before.

        Messages that the player has sent arrive before the news that it is gone, but they may
        still wait for their callbacks, which run in between two calls.
        """
        present = self._node.count_publishers(self._topic) > 0
        self._has_begun |= present or self._received > 0
        if self._has_begun and not present and self._received == self._received_before:
            self._is_over = True
        self._received_before = self._received


class RemoteEvaluator:
    """Publishes policies on ``evaluated_policy``, and takes results from ``evaluations``.

    The executor's thread receives; the training thread calls all methods.
    """

    def __init__(
        self, node: Node, learner_id: str, config: str, num_episodes: int,
        warn: Callable[[str], None],
    ) -> None:
        self._node, self._learner_id, self._config = node, learner_id, config
        self._num_episodes, self._warn = num_episodes, warn
        self._messages: deque[EvaluationMessage] = deque(maxlen=_QUEUE)
        self._policies = qos.pub(node, 'evaluated_policy')
        self._subscription = qos.sub(node, 'evaluations', self._on_evaluation)

    def _on_evaluation(self, message: EvaluationMessage) -> None:
        if message.learner_id == self._learner_id:
            self._messages.append(message)

    @property
    def present(self) -> bool:
        return bool(self._node.count_publishers(self._subscription.topic_name))

    def start(self, policy: EvaluatedPolicy) -> None:
        self._policies.publish(to_policy(
            policy.weights, stamp=self._node.get_clock().now(), learner_id=self._learner_id,
            version=policy.version, agent_steps=policy.agent_steps, config=self._config,
            flow_stats=FlowStats()))

    def take(self) -> Result | None:
        while self._messages:
            message = self._messages.popleft()
            steps, count = message.agent_steps, len(message.episodes)
            if message.problem:
                return Result(steps, None, quoted(message.problem, 200))
            try:
                if count != self._num_episodes:
                    raise ValueError(f'episodes: {count} is not {self._num_episodes}')
                return Result(steps, Evaluation(tuple(map(from_episode, message.episodes))))
            except ValueError as error:
                self._warn(f'evaluation refused: {error}')
        return None


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of a learner's process, as resolved.

    ``resume`` is the folder of a run, or ''; ``learner_id`` identifies this start to the actors,
    and ``home`` is the folder in which the process started.
    """

    env: EnvConfig
    train: TrainConfig
    algorithm: AlgorithmConfig
    attack: AttackConfig
    run: RunConfig
    folder: RunFolderConfig
    process: ProcessConfig
    modules: EnvModulesConfig
    device: torch.device
    resume: str
    learner_id: str
    home: Path


class _Source:
    """What a learner learns from: the messages of actors or of a bag, or demonstrations."""

    def __init__(
        self, node: Node, settings: TrainingSettings, learner: Learner, flow_stats: FlowStats,
        timers: dict[str, ThreadTimer], warn: Callable[[str], None],
    ) -> None:
        train, run = settings.train, settings.run
        self._node, self._flow_stats = node, flow_stats
        self._subscription: Subscription | None = None
        # When and what each actor said of its slow unroll, by name.
        self._progress: dict[str, tuple[float, str]] = {}
        self._end_of_bag = EndOfBag(node, 'trajectories') if run.relearn else None
        self._connected = ConnectedActors(
            node.get_logger(), run.own_actors, run.own_actors if train.synchronous else 0,
            partial(listen_to_states, node))
        self.inference: InferenceService | None = None
        self.inbox: InferenceService | TrajectoryInbox | DemonstrationInbox
        if isinstance(settings.algorithm, BcConfig):
            self.inbox = demonstration_inbox(
                settings.env, train, settings.algorithm, settings.modules, learner, flow_stats)
            return
        if train.inference == 'learner':
            schema = learner.schema
            steps = StepSchema(schema.observation_space, schema.frames_per_observation)
            central = CentralInference(
                learner.copy_policy(), schema, steps, flow_stats, train.credit, timers[INFERENCE],
                partial(exploration_schedule, learner.algorithm_config, frozen=train.freeze),
                train.synchronous, max_bytes=2 * memory_budget())
            self.inference = InferenceService(
                central, steps, flow_stats, settings.learner_id,
                publish=qos.pub(node, 'actions').publish, warn=warn, timer=timers[INFERENCE],
                training_timer=timers[TRAINING])
        self.inbox = self.inference or TrajectoryInbox(
            learner.schema, flow_stats, settings.learner_id, warn, timers[TRAINING],
            is_over=self._end_of_bag.is_over if self._end_of_bag else None)
        self._subscribe(self.inbox)

    def _subscribe(self, inbox: InferenceService | TrajectoryInbox) -> None:
        central = self.inference is not None
        topic = 'observations' if central else 'trajectories'
        # A lost observation is sent again, so only lost trajectories are counted.
        statistics = TopicStatistics(
            self._node, topic, lost=None if central else lambda: self._flow_stats.lost)

        def receive(message: Trajectory | Observation) -> None:
            inbox.put(message, statistics.received(message.header.stamp))
            if not central:
                self._progress.pop(message.actor_id, None)  # its unroll has ended
            if self._end_of_bag is not None:
                self._end_of_bag.on_message()

        self._subscription = qos.sub(self._node, topic, receive)
        if self._end_of_bag is None:
            qos.sub(self._node, 'actor_state', self._on_state)

    def _on_state(self, message: String) -> None:
        name = message.data.partition(' ')[0]
        # It may also have failed, or was started again.
        self._progress.pop(name, None)
        if f' {AT}step ' in message.data:
            self._progress[name] = time.monotonic(), shown(message.data, _STATE_LENGTH)
            if len(self._progress) > _MAX_STATES:
                del self._progress[next(iter(self._progress))]

    def progress(self) -> str:
        """Return what an actor has said lately of its slow unroll, or ''."""
        since, text = max(list(self._progress.values()), default=(-math.inf, ''))
        age = time.monotonic() - since
        if age >= 3.0 * TELL_S:
            return ''
        # It may be gone.
        return text if age < TELL_S + 1.0 else f'{text}, {age:.0f} s ago'

    def close(self) -> None:
        """Leave the topic: else actors would wait for an answer."""
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)

    def report(self) -> None:
        if self._subscription is not None and self._end_of_bag is None:
            publishers = self._node.count_publishers(self._subscription.topic_name)
            # Actors of another training in the domain publish there too, but send nothing to it.
            if (senders := self._flow_stats.senders) or not publishers:
                self._connected.report(min(publishers, senders))


class Training:
    """A learner with its topics and its loop; only learner 0 has a run ``folder``."""

    def __init__(self, node: Node, group: Group, settings: TrainingSettings) -> None:
        self._node, self._settings, run = node, settings, settings.run
        env, train, attack = settings.env, settings.train, settings.attack
        launch_id, first = settings.process.launch_id, group.rank == 0
        # So that no actor acts for a bag, and no player sends one to a learner of actors.
        relearn = {'relearn': True} if run.relearn else {}
        self._config = json.dumps(as_dict(env, train, settings.algorithm, attack) | relearn)
        self._timers = {TRAINING: ThreadTimer(), CALLBACKS: ThreadTimer()}
        if train.inference == 'learner':
            self._timers[INFERENCE] = ThreadTimer()
        observation_space, action_space = factory.spaces(env)
        observation_space, frames = observed(
            observation_space, factory.frames_per_observation(env), attack, train)
        self._learner = Learner(
            train, observation_space, action_space, frames, self._timers[TRAINING],
            algorithm_config=settings.algorithm, group=group, device=settings.device,
            init='' if group.rank or settings.resume else run.init)
        if text := demonstrate(env, settings.modules, self._learner):
            node.get_logger().info(text)
        self._flow_stats = FlowStats(forgets_silent=train.inference != 'learner')
        self.folder = RunFolder(
            settings.home / (settings.resume or run.run_dir
                             or default_run_dir(env.env_id, launch_id)),
            launch_id=launch_id, resume=bool(settings.resume),
            config=settings.folder) if first else None
        self._policy = qos.pub(node, 'policy') if first else None
        # With inference at the learner actors need no weights, only one message with the settings.
        self._announced = False
        self._source = _Source(
            node, settings, self._learner, self._flow_stats, self._timers, self._warn)
        self._trainer = Trainer(
            self._learner, self._source.inbox, self._flow_stats, self.folder,
            as_dict(env, settings.modules, train, settings.algorithm, attack, run,
                    settings.folder) | factory.describe(env),
            run, Callbacks(
                self._publish, node.get_logger().info, node.get_logger().warning,
                self._source.progress,
                TopicScalars(node, 'trajectories', 'observations', 'actions', 'policy').take
                if first else dict),
            evaluator=RemoteEvaluator(
                node, settings.learner_id, self._config, train.eval_episodes, self._warn,
            ) if first and train.eval_every else None, timers=self._timers)
        # The player of a bag sends ahead, and waits.
        if env.in_real_time and group.size == 1 and not run.relearn:
            self._learner.algorithm.is_awaited = lambda: self._source.inbox.waiting > 0
        self._busy = qos.pub(node, 'learner_busy')
        self._received, self._ends = 0, threading.Event()
        # They end with this object.
        self._kept = (node.create_timer(_BUSY_S, self._report_busy),
                      ThreadTimeStatistics(node, self._timers),
                      RunScalars(node, lambda: self._trainer.reporter.scalars),
                      Diagnostics(node, self._health))

    def run(self, stop: threading.Event) -> str:
        """Run the training loop in a thread, and the callbacks in this one; return why it ended.

        Raises GroupError, OSError, or RefusedError for a trajectory of another environment.
        """
        node, inference, self._ends = self._node, self._source.inference, stop
        where = f'written to {self.folder.path}' if self.folder else 'written by learner 0'

        def loop() -> str:
            reason = self._train(stop)
            node.get_logger().info(ended(reason, self.folder.path if self.folder else None))
            return reason

        of_demonstrations = isinstance(self._source.inbox, DemonstrationInbox)
        source = '' if of_demonstrations else 'waiting for trajectories; '
        node.get_logger().info(f'learning on {describe(self._settings.device)}; '
                               f'{source}the run is {where}')
        executor = make_executor()
        executor.add_node(node)
        thread = ThreadPoolExecutor(1, 'training')
        training = thread.submit(loop)
        try:
            if inference is not None:
                inference.start()
            while not training.done():
                with self._timers[CALLBACKS].executor_wait():
                    executor.spin_once(timeout_sec=0.1)
        except BaseException:
            stop.set()
            raise
        finally:
            thread.shutdown()
            if inference is not None:
                inference.stop()
            executor.remove_node(node)
            self._source.close()
        return training.result()

    def _train(self, stop: threading.Event) -> str:
        learner, run = self._learner, self._settings.run
        choice, remembered = None, self._remembered_threads()
        if remembered is not None and (threads := remembered.get()):
            torch.set_num_threads(threads)
            self._trainer.reporter.bottleneck.set_learner_threads(threads, tried=True)
            self._node.get_logger().info(
                f'learner_threads: {threads} as an earlier trial found ({remembered.path})')
        elif remembered is not None:
            choice = ThreadChoice(len(os.sched_getaffinity(0)), run.own_actors)
            learner.algorithm.optimizer.after_step = choice.after_step
            self._node.get_logger().info(choice.announcement())
        iterations = self._trainer.iterations(stop)
        while True:
            try:
                next(iterations)
            except StopIteration as end:
                return str(end.value)
            if choice is not None and remembered is not None and (line := choice.after_update(
                    learner.version, learner.agent_steps)):
                bottleneck = self._trainer.reporter.bottleneck
                bottleneck.set_learner_threads(choice.threads, tried=True)
                if (others := bottleneck.others) < HALF_A_CORE:
                    remembered.put(choice.threads)
                else:
                    line += f'; not kept for the next run: other programs hold {others:.1f} cores'
                self._node.get_logger().info(line)

    def _remembered_threads(self) -> RememberedThreads | None:
        """Return what is known of a training like this one; None: the learner tries no threads.

        Not with several learners, which would wait for each other's trials, nor with a bag: two
        replays with different numbers of threads give different weights.
        """
        settings, learner, cores = self._settings, self._learner, len(os.sched_getaffinity(0))
        if (settings.run.learner_threads or not learner.policy.of_images or learner.group.size > 1
                or settings.device != CPU or settings.run.relearn or cores == 1):
            return None
        matters = as_dict(settings.env, settings.algorithm) | {
            name: getattr(settings.train, name) for name in OF_SPEED} | {
            'num_actors': settings.run.num_actors}
        return RememberedThreads(state_folder() / 'learner_threads.json', cores, matters)

    def _publish(self) -> None:
        """Publish the weights with the credits, or load them into the inference thread."""
        learner = self._learner
        weights = learner.weights()
        if self._source.inference is not None:
            self._source.inference.load(weights, learner.version, learner.agent_steps)
            if self._announced:
                return
            weights, self._announced = {}, True
        if self._policy is None:
            return
        with self._timers[TRAINING]('encode'):
            message = to_policy(
                weights, stamp=self._node.get_clock().now(), learner_id=self._settings.learner_id,
                version=learner.version, agent_steps=learner.agent_steps,
                config=self._config, flow_stats=self._flow_stats)
        self._flow_stats.bytes_out += num_bytes(message.tensors)
        self._policy.publish(message)

    def _report_busy(self) -> None:
        """Let actors wait that are not waited for; large trajectories take long to receive.

        In a synchronous training also those that have sent theirs, for as long as the others take.
        """
        if not self._ends.is_set():
            self._source.report()
        before, self._received = self._received, self._flow_stats.received
        is_busy = self._trainer.busy or self._source.inbox.waiting or self._received > before
        waits = self._flow_stats.holders if self._settings.train.synchronous else []
        if is_busy or waits:
            self._busy.publish(LearnerBusy(
                learner_id=self._settings.learner_id, start_ids=[] if is_busy else waits))

    def _health(self) -> Health:
        flow_stats, learner = self._flow_stats, self._learner
        num_actors = self._settings.run.own_actors
        warning = ''
        if flow_stats.lost or flow_stats.rejected:
            warning = f'{flow_stats.lost} trajectories lost, {flow_stats.rejected} rejected'
        elif missing := max(num_actors - flow_stats.actors, 0):
            warning = f'nothing received lately from {missing} of {num_actors} actors'
        return warning, {
            'waiting trajectories': self._source.inbox.waiting, 'actors': flow_stats.actors,
            'received': flow_stats.received, 'lost': flow_stats.lost,
            'rejected': flow_stats.rejected,
            'policy lag, mean': round(flow_stats.lag_mean, 2),
            'policy lag, max': flow_stats.lag_max,
            'policy version': learner.version, 'agent steps': learner.agent_steps,
            'bottleneck': self._trainer.reporter.bottleneck.recent}

    def _warn(self, text: str) -> None:
        self._node.get_logger().warning(text, throttle_duration_sec=1.0)

"""One training on the graph: learner, topics, run folder and training loop."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rclpy.node import Node
from rclpy.subscription import Subscription
from std_msgs.msg import String

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.perturbed_observations import observed
from vdl_ros.common.settings import as_dict
from vdl_ros.common.thread_timer import CALLBACKS, INFERENCE, TRAINING, ThreadTimer
from vdl_ros.demonstrations.loading import demonstration_inbox
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.msg import Action, Observation, Policy, Trajectory
from vdl_ros.rl.acting.central_inference import CentralInference
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.algorithm_config import AlgorithmConfig, BcConfig
from vdl_ros.rl.device import CPU, describe
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.learning.demonstration_inbox import DemonstrationInbox
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.thread_choice import ThreadChoice
from vdl_ros.rl.learning.trainer import Trainer
from vdl_ros.rl.policy.exploration import exploration_schedule
from vdl_ros.rl.runs.run_config import RunConfig, default_run_dir
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.runs.run_folder_config import RunFolderConfig
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.messages.tensors import num_bytes
from vdl_ros.ros.process import make_executor
from vdl_ros.ros.process_config import ProcessConfig
from vdl_ros.ros.statistics.run_scalars import RunScalars
from vdl_ros.ros.statistics.thread_time_statistics import ThreadTimeStatistics
from vdl_ros.ros.statistics.topic_scalars import TopicScalars
from vdl_ros.ros.statistics.topic_statistics import TopicStatistics
from vdl_ros.ros.training.bounded_queue import memory_budget
from vdl_ros.ros.training.connected_actors import ConnectedActors
from vdl_ros.ros.training.end_of_bag import EndOfBag
from vdl_ros.ros.training.inference_service import InferenceService
from vdl_ros.ros.training.remote_evaluator import RemoteEvaluator
from vdl_ros.ros.training.trajectories import TrajectoryInbox, to_policy

__all__ = ['Training', 'TrainingSettings']

_BUSY_PERIOD_S = 1.0


@dataclass(frozen=True)
class TrainingSettings:
    """
    The settings of a learner's process, as resolved.

    Attributes:
        env: settings of the environment.
        train: settings of every algorithm.
        algorithm: settings of the chosen algorithm.
        attack: settings of the attack on what the actors' policies observe.
        run: settings of the learner's process.
        folder: what is kept in the folder of the run.
        process: settings of every process.
        modules: settings of this host's environments.
        device: device to compute on.
        resume: folder of the run to resume; empty: a new run.
        learner_id: identifies this start of the learners to their actors.
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


class Training:
    """
    A learner with its topics, its run folder and its training loop.

    Attributes:
        folder: folder of the run; None for all learners but learner 0.
    """

    def __init__(self, node: Node, group: Group, settings: TrainingSettings) -> None:
        """
        Make all parts and subscribe to the actors' messages.

        Raises:
            ValueError: an environment, a folder or a checkpoint that cannot be used.
        """
        self._node, self._settings, run = node, settings, settings.run
        env, train, algorithm_config = settings.env, settings.train, settings.algorithm
        attack = settings.attack
        launch_id = settings.process.launch_id
        # So that no actor acts for a bag, and no player sends one to a learner of actors.
        relearn = {'relearn': True} if run.relearn else {}
        self._config = json.dumps(as_dict(env, train, algorithm_config, attack) | relearn)
        self._timers = {TRAINING: ThreadTimer(), CALLBACKS: ThreadTimer()}
        if train.inference == 'learner':
            self._timers[INFERENCE] = ThreadTimer()
        observation_space, action_space = factory.spaces(env)
        observation_space, frames = observed(
            observation_space, factory.frames_per_observation(env), attack, train)
        self._learner = Learner(
            train, observation_space, action_space, frames, self._timers[TRAINING],
            algorithm_config=algorithm_config, group=group, device=settings.device,
            init='' if group.rank or settings.resume else run.init)
        self._flow_stats = FlowStats(forgets_silent=train.inference != 'learner')
        first = group.rank == 0
        self.folder = RunFolder(
            Path(settings.resume or run.run_dir or default_run_dir(env.env_id, launch_id)),
            launch_id=launch_id, resume=bool(settings.resume),
            config=settings.folder) if first else None
        self._policy = node.create_publisher(
            Policy, 'policy', qos.TOPICS['policy']) if first else None
        # With inference at the learner actors need no weights, only one message with the settings.
        self._announced = False
        self._inference = self._make_inference() if train.inference == 'learner' else None
        self._end_of_bag = EndOfBag(node, 'trajectories') if run.relearn else None
        self._source: Subscription | None = None
        self._connected = ConnectedActors(
            node.get_logger(), run.own_actors if train.synchronous else 0)
        self._inbox: InferenceService | TrajectoryInbox | DemonstrationInbox
        if isinstance(algorithm_config, BcConfig):
            self._inbox = demonstration_inbox(
                env, train, algorithm_config, settings.modules, self._learner, self._flow_stats)
        else:
            self._inbox = self._inference or TrajectoryInbox(
                self._learner.schema, self._flow_stats, settings.learner_id, self._warn,
                self._timers[TRAINING],
                is_over=self._end_of_bag.is_over if self._end_of_bag else None)
            self._subscribe(self._inbox)
        self._trainer = Trainer(
            self._learner, self.folder,
            as_dict(env, settings.modules, train, algorithm_config, attack, run,
                    settings.folder)
            | factory.describe(env),
            inbox=self._inbox, flow_stats=self._flow_stats, publish=self._publish,
            evaluator=RemoteEvaluator(
                node, settings.learner_id, self._config, train.eval_episodes, self._warn,
            ) if first and train.eval_every else None,
            log=node.get_logger().info, warn=node.get_logger().warning,
            extra_scalars=TopicScalars(
                node, 'trajectories', 'observations', 'actions', 'policy').take if first else dict,
            timers=self._timers, num_actors=run.own_actors,
            checkpoint_period=run.checkpoint_period, status_period=run.status_period,
            stall_timeout=run.stall_timeout)
        self._busy = node.create_publisher(String, 'learner_busy', qos.TOPICS['learner_busy'])
        self._busy_timer = node.create_timer(_BUSY_PERIOD_S, self._report_busy)
        self._time_statistics = ThreadTimeStatistics(node, self._timers)
        self._scalars = RunScalars(node, lambda: self._trainer.reporter.scalars)
        self._diagnostics = Diagnostics(node, self._health)

    def _make_inference(self) -> InferenceService:
        """Return the service that answers observations with actions."""
        learner, timer = self._learner, self._timers[INFERENCE]
        schema = learner.schema
        steps = StepSchema(schema.observation_space, schema.frames_per_observation)
        central = CentralInference(
            learner.copy_policy(), schema, steps, self._flow_stats, learner.config.credit, timer,
            partial(exploration_schedule, learner.algorithm_config,
                    frozen=learner.config.freeze), learner.config.synchronous,
            max_bytes=2 * memory_budget())
        return InferenceService(
            central, steps, self._flow_stats, self._settings.learner_id,
            publish=self._node.create_publisher(Action, 'actions', qos.TOPICS['actions']).publish,
            warn=self._warn, timer=timer, training_timer=self._timers[TRAINING])

    def _subscribe(self, inbox: InferenceService | TrajectoryInbox) -> None:
        """Enqueue the actors' messages in the inbox."""
        central = self._inference is not None
        topic, kind = ('observations', Observation) if central else ('trajectories', Trajectory)
        # A lost observation is sent again, so only lost trajectories are counted.
        statistics = TopicStatistics(
            self._node, topic, lost=None if central else lambda: self._flow_stats.lost)

        def receive(message: Trajectory | Observation) -> None:
            inbox.put(message, statistics.received(message.header.stamp))
            if self._end_of_bag is not None:
                self._end_of_bag.on_message()

        self._source = self._node.create_subscription(kind, topic, receive, qos.TOPICS[topic])

    def run(self, stop: threading.Event) -> str:
        """
        Run the training loop in a thread, and the callbacks in this one, until the run is over.

        Returns:
            Why it ended; see :meth:`Trainer.run`.

        Raises:
            GroupError: another learner is gone.
            OSError: the folder cannot be written.
            RefusedError: a trajectory of a bag is not one of this run's environment.
        """
        node, over = self._node, threading.Event()
        failure: list[BaseException] = []
        reasons: list[str] = []
        where = f'written to {self.folder.path}' if self.folder else 'written by learner 0'

        def loop() -> None:
            try:
                reasons.append(self._train(stop))
                node.get_logger().info(f'ended by {reasons[0]}; {where}')
            except BaseException as error:  # raised again in the main thread
                failure.append(error)
            finally:
                over.set()

        of_demonstrations = isinstance(self._inbox, DemonstrationInbox)
        source = '' if of_demonstrations else 'waiting for trajectories; '
        node.get_logger().info(f'learning on {describe(self._settings.device)}; {source}the run '
                               f'is {where}')
        executor = make_executor(self._settings.process.executor)
        executor.add_node(node)
        thread = threading.Thread(target=loop, name='training')
        thread.start()
        if self._inference is not None:
            self._inference.start()
        try:
            while not over.is_set():
                with self._timers[CALLBACKS].executor_wait():
                    executor.spin_once(timeout_sec=0.1)
        finally:
            stop.set()
            thread.join()
            if self._inference is not None:
                self._inference.stop()
            executor.remove_node(node)
        if failure:
            raise failure[0]
        return reasons[0]

    def _train(self, stop: threading.Event) -> str:
        """Run the training loop and choose its number of threads; return why it ended."""
        learner, run = self._learner, self._settings.run
        choice, cores = None, len(os.sched_getaffinity(0))
        # Not with several learners, which would wait for each other's trials, nor with a bag:
        # two replays with different numbers of threads give different weights.
        if (not run.learner_threads and learner.policy.of_images and learner.group.size == 1
                and self._settings.device == CPU and not run.relearn and cores > 1):
            choice = ThreadChoice(cores)
            self._node.get_logger().info(choice.announcement())
        iterations = self._trainer.iterations(stop)
        while True:
            try:
                next(iterations)
            except StopIteration as end:
                return str(end.value)
            if choice is not None and (line := choice.update(
                    learner.version, learner.agent_steps)):
                self._trainer.reporter.bottleneck.set_learner_threads(choice.threads, tried=True)
                self._node.get_logger().info(line)

    def _publish(self) -> None:
        """Publish the weights with the credits, or load them into the inference thread."""
        learner = self._learner
        weights = learner.weights()
        if self._inference is not None:
            self._inference.load(weights, learner.version, learner.agent_steps)
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
        """Tell the actors that the policy comes late because the learner computes."""
        # A bag has no actors.
        if self._source is not None and self._end_of_bag is None:
            self._connected.report(self._node.count_publishers(self._source.topic_name))
        if self._trainer.busy:
            self._busy.publish(String(data=self._settings.learner_id))

    def _health(self) -> Health:
        """Return the warning and the values for ``/diagnostics``."""
        flow_stats, learner = self._flow_stats, self._learner
        num_actors = self._settings.run.own_actors
        warning = ''
        if flow_stats.lost or flow_stats.rejected:
            warning = f'{flow_stats.lost} trajectories lost, {flow_stats.rejected} rejected'
        elif flow_stats.actors < num_actors:
            missing = num_actors - flow_stats.actors
            warning = f'nothing received lately from {missing} of {num_actors} actors'
        return warning, {
            'waiting trajectories': self._inbox.waiting, 'actors': flow_stats.actors,
            'received': flow_stats.received, 'lost': flow_stats.lost,
            'rejected': flow_stats.rejected,
            'policy lag, mean': round(flow_stats.lag_mean, 2),
            'policy lag, max': flow_stats.lag_max,
            'policy version': learner.version, 'agent steps': learner.agent_steps,
            'bottleneck': self._trainer.reporter.bottleneck.recent}

    def _warn(self, text: str) -> None:
        self._node.get_logger().warning(text, throttle_duration_sec=1.0)

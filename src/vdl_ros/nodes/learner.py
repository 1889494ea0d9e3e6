"""
The learner node: trains a policy on the actors' trajectories and publishes it.

Subscribes: ``trajectories`` (vdl_ros/Trajectory), or ``observations`` (vdl_ros/Observation) with
inference:=learner; ``/statistics``, for TensorBoard. Publishes: ``policy`` (vdl_ros/Policy,
latched; only learner 0) after every ``publish_every`` updates; ``learner_busy`` (std_msgs/String)
each second of an update, so that actors wait for its policy; ``actions`` (vdl_ros/Action) with
inference:=learner; ``/statistics``, including the time shares of its threads; ``/diagnostics``.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros learner --help``.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from rclpy.node import Node
from std_msgs.msg import String

from vdl_ros import presets
from vdl_ros.common.settings import SettingError, as_dict, select
from vdl_ros.common.thread_timer import CALLBACKS, INFERENCE, TRAINING, ThreadTimer
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.msg import Action, Observation, Policy, Trajectory
from vdl_ros.rl.acting.central_inference import CentralInference
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.acting.learner_choice import make_learner_id
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.algorithm_config import (
    ALGORITHM_SETTINGS,
    AlgorithmConfig,
    make_algorithm_config,
    reject_other_algorithm_settings,
    verify,
)
from vdl_ros.rl.device import choose_device, describe
from vdl_ros.rl.distributed.collectives import Group, GroupError, MissingError
from vdl_ros.rl.distributed.process_group import join
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.trainer import NOT_FINITE, Trainer
from vdl_ros.rl.policy.exploration import exploration_schedule
from vdl_ros.rl.runs.run_config import RunConfig, default_run_dir, verify_run
from vdl_ros.rl.runs.run_folder import RunFolder, saved_settings
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import parameters, qos
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.messages.tensors import num_bytes
from vdl_ros.ros.process import (
    EXIT_BAD_INPUT,
    EXIT_OK,
    EXIT_RESTART,
    die_with_parent,
    make_executor,
    run_node,
    set_up,
)
from vdl_ros.ros.process_config import ProcessConfig
from vdl_ros.ros.robots.registration import register
from vdl_ros.ros.statistics.run_scalars import RunScalars
from vdl_ros.ros.statistics.thread_time_statistics import ThreadTimeStatistics
from vdl_ros.ros.statistics.topic_scalars import TopicScalars
from vdl_ros.ros.statistics.topic_statistics import TopicStatistics
from vdl_ros.ros.training.bounded_queue import memory_budget
from vdl_ros.ros.training.inference_service import InferenceService
from vdl_ros.ros.training.trajectories import TrajectoryInbox, to_policy
from vdl_ros.saved_policy import record_video

SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(), RunConfig,
            ProcessConfig)
_BUSY_PERIOD_S = 1.0


class LearnerNode(Node):
    """
    The node with its settings; :class:`Training` adds learner, topics and training loop.

    Attributes:
        run: settings of the learner's process.
        process: settings of every process.
        modules: settings of this host's environments.
        device: device to compute on.
        resume: folder of the run to resume; empty: a new run.
        learner_id: identifies this start of the learners to their actors.
    """

    def __init__(self) -> None:
        """
        Resolve the settings.

        Raises:
            ValueError: a setting that is not allowed, a module that cannot be imported, or a run
                that cannot be resumed.
        """
        super().__init__('learner')
        self._given = parameters.given(self, *SETTINGS)
        rank = self._given.get('learner_rank', 0)
        self.resume = '' if rank else str(self._given.get('resume', ''))
        # The other learners receive the settings of learner 0 in share_settings.
        self._values = dict(self._given) if rank else presets.resolve(
            self._given, saved_settings(Path(self.resume)) if self.resume else None)
        self.run, self.process = (
            select(RunConfig, self._values), select(ProcessConfig, self._values))
        verify_run(self.run)
        self.modules = select(EnvModulesConfig, self._given)
        import_modules(self.modules)
        # Only their spaces: the actors run them.
        register(self.modules, self, threading.Event())
        if not rank:
            self.configs()
        self.device = choose_device(self.run.device, self.run.learner_rank)
        torch.set_num_threads(self.run.learner_threads)
        self.learner_id = make_learner_id(self.process.launch_id)
        if self.process.launch_id:
            die_with_parent()

    def configs(self) -> tuple[EnvConfig, TrainConfig, AlgorithmConfig]:
        """
        Return the settings of environment, learning and algorithm.

        Raises:
            SettingError: a value that is not allowed.
        """
        env, train = select(EnvConfig, self._values), select(TrainConfig, self._values)
        algorithm_config = make_algorithm_config(train, self._values)
        verify(train, algorithm_config, self.run.num_learners)
        return env, train, algorithm_config

    def join_group(self, stop: threading.Event) -> Group | None:
        """
        Return the group of all learners, or None if ``stop`` was set before all had joined.

        Raises:
            GroupError: another learner does not answer, or is gone.
        """
        run = self.run
        if run.num_learners == 1:
            return Group()
        self.get_logger().info(f'learner {run.learner_rank} of {run.num_learners} joins the '
                               f'others at {run.group_address}')
        while True:
            try:
                return join(run.learner_rank, run.num_learners, run.group_address,
                            run.group_timeout, stop=stop, device=self.device)
            except MissingError as error:
                # Not to be started again: learners that take longer to start than the others
                # wait would come and go in turn, and never meet.
                self.get_logger().warning(f'{error}; it goes on waiting')

    def share_settings(self, group: Group) -> None:
        """
        Take over the settings and the id of learner 0, and declare all parameters.

        Raises:
            GroupError: another learner is gone.
            SettingError: a given setting differs from learner 0's.
        """
        shared = {} if group.rank else (
            as_dict(*self.configs()) | {'num_actors': self.run.num_actors})
        self.learner_id, shared = json.loads(
            group.broadcast(json.dumps([self.learner_id, shared]).encode()))
        reject_other_algorithm_settings(self._given, shared['algorithm'])
        for name, value in self._given.items():
            if shared.get(name, value) != value:
                raise SettingError(f'{name}: {value!r} is not allowed: learner 0 has '
                                   f'{shared[name]!r}')
        self._values |= shared
        self.run = select(RunConfig, self._values)
        parameters.declare(self, self._values, *SETTINGS)


class Training:
    """A learner with its topics, its run folder and its training loop."""

    def __init__(self, node: LearnerNode, group: Group) -> None:
        """
        Make all parts and subscribe to the actors' messages.

        Raises:
            ValueError: an environment, a folder or a checkpoint that cannot be used.
        """
        self._node, run, launch_id = node, node.run, node.process.launch_id
        env, train, algorithm_config = node.configs()
        self._config = json.dumps(as_dict(env, train, algorithm_config))
        self._timers = {TRAINING: ThreadTimer(), CALLBACKS: ThreadTimer()}
        if train.inference == 'learner':
            self._timers[INFERENCE] = ThreadTimer()
        self._learner = Learner(
            train, *factory.spaces(env), factory.frames_per_observation(env),
            self._timers[TRAINING], algorithm_config=algorithm_config, group=group,
            device=node.device, init='' if group.rank or node.resume else run.init)
        self._flow_stats = FlowStats(forgets_silent=train.inference != 'learner')
        first = group.rank == 0
        self._folder = RunFolder(
            Path(node.resume or run.run_dir or default_run_dir(env.env_id, launch_id)),
            launch_id=launch_id, resume=bool(node.resume)) if first else None
        self._policy = node.create_publisher(
            Policy, 'policy', qos.TOPICS['policy']) if first else None
        # With inference at the learner actors need no weights, only one message with the settings.
        self._announced = False
        self._inference = self._make_inference() if train.inference == 'learner' else None
        self._inbox = self._inference or TrajectoryInbox(
            self._learner.schema, self._flow_stats, node.learner_id, self._warn,
            self._timers[TRAINING])
        self._subscribe()
        self._trainer = Trainer(
            self._learner, self._folder,
            as_dict(env, node.modules, train, algorithm_config, run) | factory.describe(env),
            inbox=self._inbox, flow_stats=self._flow_stats, publish=self._publish,
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
            partial(exploration_schedule, learner.algorithm_config), learner.config.synchronous,
            max_bytes=2 * memory_budget())
        return InferenceService(
            central, steps, self._flow_stats, self._node.learner_id,
            publish=self._node.create_publisher(Action, 'actions', qos.TOPICS['actions']).publish,
            warn=self._warn, timer=timer, training_timer=self._timers[TRAINING])

    def _subscribe(self) -> None:
        """Enqueue the actors' messages in the inbox."""
        central = self._inference is not None
        topic, kind = ('observations', Observation) if central else ('trajectories', Trajectory)
        # A lost observation is sent again, so only lost trajectories are counted.
        statistics = TopicStatistics(
            self._node, topic, lost=None if central else lambda: self._flow_stats.lost)

        def receive(message: Trajectory | Observation) -> None:
            self._inbox.put(message, statistics.received(message.header.stamp))

        self._node.create_subscription(kind, topic, receive, qos.TOPICS[topic])

    def run(self, stop: threading.Event) -> str:
        """
        Run the training loop in a thread, and the callbacks in this one, until the run is over.

        Returns:
            Why it ended; see :meth:`Trainer.run`.

        Raises:
            GroupError: another learner is gone.
            OSError: the folder cannot be written.
        """
        node, over = self._node, threading.Event()
        failure: list[BaseException] = []
        reasons: list[str] = []
        where = f'written to {self._folder.path}' if self._folder else 'written by learner 0'

        def loop() -> None:
            try:
                reasons.append(self._trainer.run(stop))
                node.get_logger().info(f'ended by {reasons[0]}; {where}')
            except BaseException as error:  # raised again in the main thread
                failure.append(error)
            finally:
                over.set()

        node.get_logger().info(f'learning on {describe(node.device)}; waiting for trajectories; '
                               f'the run is {where}')
        executor = make_executor(node.process.executor)
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

    def record_video(self) -> None:
        """Record what the policy does into the run's folder, where that can be drawn."""
        assert self._folder is not None
        log = self._node.get_logger()
        try:
            log.info(record_video(self._folder.checkpoint, self._folder.path / 'video.mp4'))
        except (ValueError, OSError) as error:
            log.warning(f'no video: {error}')
        except Exception:  # the environment's own: the run has ended well and must not start again
            log.error(f'no video:\n{traceback.format_exc()}')

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
                weights, stamp=self._node.get_clock().now(), learner_id=self._node.learner_id,
                version=learner.version, agent_steps=learner.agent_steps,
                config=self._config, flow_stats=self._flow_stats)
        self._flow_stats.bytes_out += num_bytes(message.tensors)
        self._policy.publish(message)

    def _report_busy(self) -> None:
        """Tell the actors that the policy comes late because the learner computes."""
        if self._trainer.busy:
            self._busy.publish(String(data=self._node.learner_id))

    def _health(self) -> Health:
        """Return the warning and the values for ``/diagnostics``."""
        flow_stats, learner = self._flow_stats, self._learner
        num_actors = self._node.run.own_actors
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


def train(node: LearnerNode, stop: threading.Event) -> int:
    """Join the other learners and train; if the group breaks, exit to be started again."""
    group = None
    try:
        with set_up():
            group = node.join_group(stop)
            if group is not None:
                node.share_settings(group)
                training = Training(node, group)
        if group is not None:
            reason = training.run(stop)
            if reason == NOT_FINITE:
                # A restart would meet the same numbers again.
                return EXIT_BAD_INPUT
            if node.run.video and reason != 'interrupted':
                training.record_video()
    except GroupError as error:
        node.get_logger().error(f'{error}; all learners start again')
        return EXIT_RESTART
    finally:
        if group is not None:
            group.close()
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('learner', LearnerNode, train, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())

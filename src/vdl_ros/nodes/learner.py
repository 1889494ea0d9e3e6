"""
The learner: trajectories in, policies out.

Subscribes: ``trajectories`` (vdl_ros/Trajectory), or ``observations`` (vdl_ros/Observation) with
inference:=learner; ``/statistics``, for the run's events. Publishes: ``policy`` (vdl_ros/Policy,
latched) after every ``publish_every`` updates, unless another learner does so for all;
``actions`` (vdl_ros/Action) with inference:=learner, ``/statistics``, also of where its time
goes, ``/diagnostics``.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros learner --help``.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from rclpy.node import Node

from vdl_ros import presets
from vdl_ros.common.settings import SettingError, as_dict, select
from vdl_ros.common.thread_timer import CALLBACKS, INFERENCE, TRAINING, ThreadTimer
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Action, Observation, Policy, Trajectory
from vdl_ros.rl.acting.central_inference import CentralInference
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.algorithm_config import (
    ALGORITHM_SETTINGS,
    AlgorithmConfig,
    make_algorithm_config,
    reject_other_algorithm_settings,
    verify,
)
from vdl_ros.rl.device import choose_device, describe
from vdl_ros.rl.distributed.collectives import Group, GroupError
from vdl_ros.rl.distributed.process_group import join
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.trainer import Trainer
from vdl_ros.rl.policy.exploration import exploration_schedule
from vdl_ros.rl.runs.run_config import RunConfig, verify_run
from vdl_ros.rl.runs.run_folder import RunFolder, saved_settings
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import parameters, qos
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.messages.tensors import num_bytes
from vdl_ros.ros.process import EXIT_OK, EXIT_RESTART, die_with_parent, make_executor, run_node
from vdl_ros.ros.process_config import ProcessConfig
from vdl_ros.ros.statistics.thread_time_statistics import ThreadTimeStatistics
from vdl_ros.ros.statistics.topic_scalars import TopicScalars
from vdl_ros.ros.statistics.topic_statistics import TopicStatistics
from vdl_ros.ros.training.inference_service import InferenceService
from vdl_ros.ros.training.trajectories import TrajectoryInbox, to_policy

SETTINGS = (EnvConfig, TrainConfig, *ALGORITHM_SETTINGS.values(), RunConfig, ProcessConfig)


class LearnerNode(Node):
    """Gives the trainer its trajectories and its policies their topic."""

    def __init__(self) -> None:
        """
        Resolve the settings.

        Raises:
            ValueError: a setting or a run to go on with that cannot be used.
        """
        super().__init__('learner')
        self._given = parameters.given(self, *SETTINGS)
        rank = self._given.get('learner_rank', 0)
        self._resume = '' if rank else str(self._given.get('resume', ''))
        # Only the first knows the run: the others take over its settings when they meet it.
        self._values = dict(self._given) if rank else presets.resolve(
            self._given, saved_settings(Path(self._resume)) if self._resume else None)
        self.run, self.process = (
            select(RunConfig, self._values), select(ProcessConfig, self._values))
        verify_run(self.run)
        if not rank:
            self._verify_all()
        self.device = choose_device(self.run.device, self.run.learner_rank)
        torch.set_num_threads(self.run.learner_threads)
        self._id = uuid.uuid4().hex
        self.group = Group()
        self.inference: InferenceService | None = None
        self._told = False
        if self.process.launch_id:
            die_with_parent()

    def _verify_all(self) -> tuple[EnvConfig, TrainConfig, AlgorithmConfig]:
        env, train = select(EnvConfig, self._values), select(TrainConfig, self._values)
        own = make_algorithm_config(train, self._values)
        verify(train, own, self.run.num_learners)
        return env, train, own

    def prepare(self, stop: threading.Event) -> bool:
        """
        Meet the other learners, if there are any, and prepare the run.

        Returns:
            False if ``stop`` was set meanwhile: there is no run.

        Raises:
            GroupError: the others did not come.
            ValueError: an environment, a folder or a checkpoint that cannot be used.
        """
        if self.run.num_learners > 1 and not self._meet(stop):
            return False
        parameters.declare(self, self._values, *SETTINGS)
        env, train, own = self._verify_all()
        self._config = json.dumps(as_dict(env, train, own))
        self.clocks = {TRAINING: ThreadTimer(), CALLBACKS: ThreadTimer()}
        if train.inference == 'learner':
            self.clocks[INFERENCE] = ThreadTimer()
        self._learner = Learner(
            train, *factory.spaces(env), factory.frames_per_observation(env),
            self.clocks[TRAINING], own=own, group=self.group, device=self.device)
        self._flow_stats = FlowStats()
        first = self.group.rank == 0
        self.folder = RunFolder(
            Path(self._resume or self.run.run_dir or default_run_dir(env.env_id, self.process)),
            launch_id=self.process.launch_id, resume=bool(self._resume)) if first else None
        self._policy = self.create_publisher(
            Policy, 'policy', qos.TOPICS['policy']) if first else None
        self._inbox = self._open_inbox(train)
        topics = TopicScalars(
            self, 'trajectories', 'observations', 'actions', 'policy').take if first else dict
        self.trainer = Trainer(
            self._learner, self.folder, as_dict(env, train, own, self.run),
            inbox=self._inbox, flow_stats=self._flow_stats, publish=self._publish,
            say=self.get_logger().info, topics=topics, clocks=self.clocks,
            num_actors=self.run.own_actors, checkpoint_period=self.run.checkpoint_period,
            status_period=self.run.status_period)
        self._time_statistics = ThreadTimeStatistics(self, self.clocks)
        self._diagnostics = Diagnostics(self, self._health)
        return True

    def _meet(self, stop: threading.Event) -> bool:
        """Meet the other learners and take the settings of the first; False if interrupted."""
        run = self.run
        self.get_logger().info(
            f'learner {run.learner_rank} of {run.num_learners} meets the others at '
            f'{run.group_address}')
        group = join(run.learner_rank, run.num_learners, run.group_address, run.group_timeout,
                     stop=stop, device=self.device)
        if group is None:
            return False
        self.group = group
        shared = {} if group.rank else (
            as_dict(*self._verify_all()) | {'num_actors': run.num_actors})
        told = json.loads(group.broadcast(json.dumps([self._id, shared]).encode()))
        self._id, shared = told
        reject_other_algorithm_settings(self._given, shared['algorithm'])
        for name, value in self._given.items():
            if shared.get(name, value) != value:
                raise SettingError(f'{name}: {value!r} is not allowed: learner 0 has '
                                   f'{shared[name]!r}')
        self._values |= shared
        self.run = select(RunConfig, self._values)
        return True

    def _open_inbox(self, train: TrainConfig) -> TrajectoryInbox | InferenceService:
        """Subscribe to what the unrolls come from."""
        schema = self._learner.schema
        topic: str
        inbox: TrajectoryInbox | InferenceService
        if train.inference == 'learner':
            topic, kind = 'observations', Observation
            actions = self.create_publisher(Action, 'actions', qos.TOPICS['actions'])
            steps = StepSchema(schema.observation_space, schema.frames_per_observation)
            central = CentralInference(
                self._learner.copy_policy(), schema, steps, self._flow_stats, train.credit,
                self.clocks[INFERENCE], partial(exploration_schedule, self._learner.own),
                train.synchronous)
            inbox = self.inference = InferenceService(
                central, steps, self._flow_stats, self._id, publish=actions.publish,
                warn=self._warn, timer=self.clocks[INFERENCE],
                training_timer=self.clocks[TRAINING])
        else:
            topic, kind = 'trajectories', Trajectory
            inbox = TrajectoryInbox(
                schema, self._flow_stats, self._id, self._warn, self.clocks[TRAINING])
        # An observation that is lost is sent again: nobody counts them.
        statistics = TopicStatistics(
            self, topic, lost=None if self.inference else lambda: self._flow_stats.lost)

        def receive(message: Trajectory | Observation) -> None:
            inbox.put(message, statistics.received(message.header.stamp))

        self.create_subscription(kind, topic, receive, qos.TOPICS[topic])
        return inbox

    def _publish(self) -> None:
        weights = self._learner.weights()
        if self.inference is not None:
            # The actors need no weights, only to know whom to ask.
            self.inference.load(
                weights, self._learner.version, self._learner.agent_steps)
            if self._told:
                return
            weights, self._told = {}, True
        if self._policy is None:
            return
        with self.clocks[TRAINING]('encode'):
            message = to_policy(
                weights, stamp=self.get_clock().now(), learner_id=self._id,
                version=self._learner.version, agent_steps=self._learner.agent_steps,
                config=self._config, flow_stats=self._flow_stats)
        self._flow_stats.bytes_out += num_bytes(message.tensors)
        self._policy.publish(message)

    def _health(self) -> Health:
        flow_stats, waiting = self._flow_stats, self._inbox.waiting
        missing = self.run.own_actors - flow_stats.actors
        warning = ''
        if flow_stats.lost or flow_stats.rejected:
            warning = f'{flow_stats.lost} trajectories lost, {flow_stats.rejected} rejected'
        elif missing > 0:
            warning = f'{missing} of {self.run.own_actors} actors not heard yet'
        return warning, {
            'waiting trajectories': waiting, 'actors': flow_stats.actors,
            'received': flow_stats.received, 'lost': flow_stats.lost,
            'rejected': flow_stats.rejected,
            'policy lag, mean': round(flow_stats.lag_mean, 2),
            'policy lag, max': flow_stats.lag_max,
            'policy version': self._learner.version, 'agent steps': self._learner.agent_steps}

    def _warn(self, text: str) -> None:
        self.get_logger().warning(text, throttle_duration_sec=1.0)


def default_run_dir(env_id: str, process: ProcessConfig) -> str:
    """Return runs/<environment>-<time>; the same again for a node that its launch restarts."""
    when = process.launch_id or time.strftime('%Y%m%d-%H%M%S')
    return f'runs/{env_id.replace("/", "-")}-{when}'


def train(node: LearnerNode, stop: threading.Event) -> int:
    """Train; what breaks the group of learners is said, and a reason to start again."""
    try:
        if node.prepare(stop):
            _train(node, stop)
    except GroupError as error:
        node.get_logger().error(f'{error}; all learners begin anew')
        return EXIT_RESTART
    finally:
        node.group.close()
    return EXIT_OK


def _train(node: LearnerNode, stop: threading.Event) -> None:
    """Train in a thread of its own while this one calls back."""
    failure: list[BaseException] = []
    over = threading.Event()
    where = f'written to {node.folder.path}' if node.folder else 'written by learner 0'

    def loop() -> None:
        try:
            reason = node.trainer.run(stop)
            node.get_logger().info(f'ended by {reason}; {where}')
        except BaseException as error:  # handed to the main thread, which ends the process
            failure.append(error)
        finally:
            over.set()

    node.get_logger().info(f'learning on {describe(node.device)}; waiting for trajectories; the '
                           f'run is {where}')
    executor = make_executor(node.process.executor)
    executor.add_node(node)
    thread = threading.Thread(target=loop, name='training')
    thread.start()
    if node.inference is not None:
        node.inference.start()
    try:
        while not over.is_set():
            with node.clocks[CALLBACKS].executor_wait():
                executor.spin_once(timeout_sec=0.1)
    finally:
        stop.set()
        thread.join()
        if node.inference is not None:
            node.inference.stop()
        executor.remove_node(node)
    if failure:
        raise failure[0]


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('learner', LearnerNode, train, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())

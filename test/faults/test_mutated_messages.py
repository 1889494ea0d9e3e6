"""Mutated messages of a run and of its bags, read as its nodes read them."""

import contextlib
import copy
import json
import os
import queue
import time

import gymnasium
import numpy as np
import pytest
from builtin_interfaces.msg import Time as Stamp
from central_sides import TRAIN, Asking, Learner, make_envs
from mutations import limited_memory, mutate_fields, mutated_bytes, mutated_settings, pick
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Header

from vdl_ros.bags import messages as bag_messages
from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.common.settings import as_dict, select
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import MotorCommand
from vdl_ros.rl.acting.flow_control import Credit
from vdl_ros.rl.acting.make_actor import make_actor
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.policy.policy import weights
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.training.inference_service import InferenceService
from vdl_ros.ros.training.messages import (
    TrajectoryInbox,
    policy_config,
    to_observation,
    to_policy,
    to_trajectory,
)

EACH = 1000
MEMORY = 2 << 30
# A reader that takes so long has to do with the square of a number; so has a line this long.
LONGEST_S, LONGEST_LINE = 1.0, 500
ENV_IDS = 'vdl/Counter-v0', 'vdl/PixelCounter-v0'
STEPS = 4
SETTINGS = as_dict(EnvConfig(), TRAIN) | {'algorithm': 'ppo', 'ppo_clip': 0.1}


class RefusedError(Exception):
    """A mutated input was refused as it is documented."""


def checked(lines):
    """Check the lines of refusals; raise RefusedError if there are any."""
    for line in lines:
        assert line.isprintable(), f'more than one line: {line!r}'
        assert len(line) < LONGEST_LINE, f'{len(line)} characters: {line[:200]}'
    if lines:
        raise RefusedError


def received(message, rng):
    """Return a message of which fields or bytes were changed; RefusedError: none comes of it."""
    if rng.random() < 0.5:
        changed = copy.deepcopy(message)
        for _ in range(int(rng.integers(1, 4))):
            mutate_fields(changed, rng)
        return deserialize_message(serialize_message(changed), type(message))
    try:
        return deserialize_message(mutated_bytes(serialize_message(message), rng), type(message))
    except Exception as error:
        if type(error).__name__ != 'RMWError' and not str(error).startswith(
                'failed to deserialize'):
            raise
        raise RefusedError from None


class Trajectories:
    """A learner's inbox of trajectories, and the batch of those that it returns."""

    def __init__(self, frames, compression='none'):
        space = gymnasium.spaces.Box(0, 255, (3, 8, 8), np.uint8) if frames > 1 else (
            gymnasium.spaces.Box(-1, 1, (3,), np.float32))
        self.schema = UnrollSchema(space, gymnasium.spaces.Discrete(2), STEPS, frames)
        self.warnings = []
        self.inbox = TrajectoryInbox(self.schema, FlowStats(), 'me', self.warnings.append)
        arrays = self.schema.empty(2)
        for value in arrays.values():
            value[...] = 0
        arrays['is_reset'][2, 1] = True
        observations = arrays.pop('observations')
        self.message = to_trajectory(
            arrays | self.schema.encode(observations, arrays['is_reset']),
            stamp=Time(seconds=12), actor_id='a', start_id=1, sequence=0, learner_id='me',
            policy_version=5, compression=compression)

    def mutated(self, rng):
        # A number that has arrived before would be ignored.
        self.message.sequence += 1
        return received(self.message, rng)

    def read(self, message):
        self.warnings.clear()
        self.inbox.put(message, 0.0)
        try:
            unroll = self.inbox.get(0.0)
        except queue.Empty:
            checked(self.warnings)
            return
        make_batch([unroll], self.schema)


class Observations:
    """A learner with central inference, which answers the observations of actors."""

    def __init__(self, env_id):
        learner = Learner(env_id, max_in_flight=1000)
        self.warnings = []
        self.service = InferenceService(
            learner.central, learner.steps, learner.flow_stats, 'me', publish=lambda _: None,
            warn=self.warnings.append)
        asking = Asking(learner, env_id)
        self.messages, self.step = [], 0
        for whole in (True, False):
            asking.whole = whole
            request = asking.request()
            self.messages.append(to_observation(
                dict(request.arrays), stamp=Stamp(), actor_id='a', start_id=1,
                step=request.step, learner_id='me'))
            asking.actor.take(np.zeros(3, np.int64))
        asking.actor.envs.close()

    def mutated(self, rng):
        message = pick(rng, self.messages)
        self.step += 1
        message.step = self.step
        return received(message, rng)

    def read(self, message):
        self.warnings.clear()
        # As its thread does, but here: errors and times are those of this message.
        self.service._answer([(message, 0.0)])
        checked(self.warnings)


class Policies:
    def __init__(self):
        learner = Learner(ENV_IDS[0])
        envs = make_envs(ENV_IDS[0], 1, 2)
        settings = select(TrainConfig, SETTINGS)
        self.actor = make_actor(
            envs, settings, make_algorithm_config(settings, SETTINGS), 1, seed=1,
            timer=ThreadTimer(), threads=1, exploration=lambda steps: 0.0)
        flow_stats = FlowStats()
        flow_stats.arrive('a', 1, 0)
        self.message = to_policy(
            weights(learner.policy), stamp=Time(seconds=12), learner_id='me', version=3,
            agent_steps=5, config=json.dumps(SETTINGS), flow_stats=flow_stats)
        self.weights = copy.deepcopy(weights(learner.policy))

    def mutated(self, rng):
        sent = self.message
        if rng.random() < 0.4:
            sent = copy.deepcopy(sent)
            sent.config = json.dumps(mutated_settings(SETTINGS, rng))
        return received(sent, rng) if rng.random() < 0.7 else sent

    def read(self, message):
        self.actor.load(self.weights, 1)
        try:
            config = policy_config(message)
            select(EnvConfig, config)
            make_algorithm_config(select(TrainConfig, config), config)
            self.actor.load(from_tensors(message.tensors), message.version, message.agent_steps)
        except ValueError as error:
            checked([str(error)])
        credit = Credit(4)
        used = next((each.used for each in message.credits if each.start_id == 1), None)
        credit.on_policy(message.learner_id, used, message.version, len(message.credits))


class BagMessages:
    def __init__(self):
        header = Header(frame_id='camera', stamp=Stamp(sec=3, nanosec=7))
        self.messages = {
            'sensor_msgs/msg/Image': Image(
                header=header, height=2, width=3, encoding='rgb8', step=9, data=list(range(18))),
            'sensor_msgs/msg/CameraInfo': CameraInfo(
                header=header, height=2, width=3, d=[0.1] * 5),
            'sensor_msgs/msg/JointState': JointState(
                header=header, name=['base', 'elbow'], position=[1.0, -2.0]),
            'vdl_ros/msg/MotorCommand': MotorCommand(header=header, sender='/teleop', base=1)}

    def mutated(self, rng):
        kind = pick(rng, list(self.messages))
        return kind, mutated_bytes(serialize_message(self.messages[kind]), rng)

    def read(self, message):
        kind, data = message
        try:
            found = bag_messages.decode(data, kind)
            bag_messages.stamp_of(found)
            if kind.endswith('JointState'):
                bag_messages.values_by_name(found.name, found.position)
        except bag_messages.MessageError as error:
            checked([str(error)])


@pytest.fixture
def quiet():
    """Keep what the middleware prints about each message out of the output."""
    before, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    yield
    os.dup2(before, 2)
    os.close(before)
    os.close(null)


READERS = {
    'trajectories': lambda: Trajectories(1), 'trajectories of frames': lambda: Trajectories(3),
    'compressed trajectories': lambda: Trajectories(3, 'zstd'),
    'observations': lambda: Observations(ENV_IDS[0]),
    'observations of frames': lambda: Observations(ENV_IDS[1]),
    'policies': Policies, 'messages of bags': BagMessages}


@pytest.mark.fault_row(
    'mutated trajectories, observations, policies and messages of bags',
    'read, or refused in one line, within 2 GB', reduced=30, full=100, each=EACH)
def test_mutated_messages_are_read_or_refused_in_one_line(trials, quiet):
    def read(index, rng):
        readers = {name: make() for name, make in READERS.items()}
        slowest, slow, refused = 0.0, 0, 0
        with limited_memory(MEMORY):
            # The first message of a kind also makes its parser.
            for reader in readers.values():
                for _ in range(10):
                    with contextlib.suppress(RefusedError):
                        reader.read(reader.mutated(rng))
            for number in range(EACH):
                name = pick(rng, list(readers))
                started = time.thread_time()
                try:
                    message = readers[name].mutated(rng)
                    # Of this thread: what the machine does meanwhile does not count.
                    started = time.thread_time()
                    readers[name].read(message)
                except RefusedError:
                    refused += 1
                except Exception as error:
                    raise AssertionError(f'{name}, case {number}: {error!r}') from error
                took = time.thread_time() - started
                assert took < LONGEST_S, f'{name}, case {number}: {took:.2f} s'
                slowest, slow = max(slowest, took), slow + (took > 0.01)
        assert refused > EACH / 4
        return {'slowest (ms)': slowest * 1e3, 'above 10 ms (of 1,000)': slow,
                'refused (of 1,000)': refused}

    trials.run(read)

"""Record demonstrations, one bag for each episode; ``ros2 run vdl_ros record_episodes --help``.

Subscribes to the topics of a robot's contract, with the quality of service that their publishers
offer, and writes them from the key ``s`` to ``y`` (a success) or ``n`` (a failure). The services
``record_episodes/start``, ``success``, ``failure`` and ``discard`` (std_srvs/Trigger) do the same
for the buttons of the viewer. Publishes: ``record_episodes/state`` (std_msgs/String, latched).
Without a terminal the keys are lines of standard input. With ``--env`` a policy acts in an
environment instead, without topics, and its episodes become a LeRobot data set. See
docs/demonstrations.md.

Exit status: 0 at the end of the input or after ``q``; 2 for an input that cannot be used; 3 when
the disk is full; with ``--env`` 130 after a signal, which leaves fewer episodes.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rclpy.executors import Executor
from std_msgs.msg import String
from std_srvs.srv import Trigger

from vdl_ros.bags.reader import BagError, EpisodeLabels
from vdl_ros.common.children import ending_within, telling
from vdl_ros.common.command_line import (
    EXIT_DISK,
    EXIT_INTERRUPTED,
    OneLineParser,
    run_tool,
    say,
    stop_on_signals,
    whole_number,
)
from vdl_ros.demonstrations.episode_keys import HELP, EpisodeKeys, Request
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.ros.bags.recording import EpisodeBags, Recording, topics_of
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.process import EXIT_OK, call_back, split_words

EXIT_REFUSED = 1
#: Requests that are services too, std_srvs/Trigger.
SERVICES = ('start', 'success', 'failure', 'discard')
# How long a script's first line waits for the robot, s.
PATIENCE_S = 30.0
# Longest time from a signal to the end of a recording in an environment, s.
_ENDS_WITHIN_S = 8.0
# Time between looks at the keys, s.
POLL_S = 0.02


class Answer(NamedTuple):
    """Whether a request was carried out, and a line about it."""

    done: bool
    text: str


class RecordEpisodesNode(BaseNode):
    """Records the topics while an episode lasts."""

    NAME = 'record_episodes'

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self._contract = find_contract(options.robot)
        self._task = options.task
        self.bags = EpisodeBags(options.output, compression=options.compression,
                                distribution=os.environ.get('ROS_DISTRO', ''))
        topics = topics_of(self._contract, self.resolve_topic_name)
        self.recording = Recording(
            self, ','.join(filter(None, [topics, options.topics])), self.bags)
        self._timer = self.create_timer(0.5, self.recording.discover_topics)
        self.recording.discover_topics()
        #: Why it cannot go on; None while it can.
        self.failure: OSError | BagError | None = None
        self._state_publisher = self.pub('record_episodes/state')
        for name in SERVICES:
            self.create_service(Trigger, f'record_episodes/{name}', partial(self._on_call, name))
        self._publish_state(self.saved)

    @property
    def saved(self) -> str:
        count = self.bags.saved
        return '1 episode is saved' if count == 1 else f'{count} episodes are saved'

    @property
    def silent(self) -> list[str]:
        """Topics of the robot that nobody publishes; of several copies one is enough."""
        names = [[self._contract.full(topic.topic, copy)
                  for topic in self._contract.observed_inputs.values()]
                 for copy in range(self._contract.copies)]
        return min(([name for name in each
                     if not self.count_publishers(self.resolve_topic_name(name))]
                    for each in names), key=len)

    def on_request(self, request: Request) -> Answer:
        """Start, save or discard an episode, or change the text of the task; log the answer."""
        try:
            answer = self._answer(request)
        except (OSError, BagError) as error:
            self.failure = error
            return Answer(False, 'the episode cannot be written')
        if answer.done:
            self.get_logger().info(answer.text)
        else:
            self.get_logger().warning(answer.text)
        if request.name in (*SERVICES, 'task'):
            self._publish_state(answer.text)
        return answer

    def _on_call(
        self, name: str, _: Trigger.Request, response: Trigger.Response,
    ) -> Trigger.Response:
        response.success, response.message = self.on_request(Request(name))
        return response

    def _publish_state(self, text: str) -> None:
        self._state_publisher.publish(String(data=text))

    def _answer(self, request: Request) -> Answer:
        if request.name == 'help':
            return Answer(True, HELP)
        if request.name == 'ask':
            return Answer(True, 'task, and Enter:')
        if request.name == 'task':
            self._task = request.text
            return Answer(True, f'task: {self._task}')
        if request.name == 'start':
            return self._start()
        if request.name not in SERVICES:
            return Answer(False, f'{request.text!r} is no key: {HELP}')
        if not self.bags.is_recording:
            return Answer(False, f'{request.name}: no episode is being recorded; s starts one')
        if request.name == 'discard':
            name = self.bags.name
            self.bags.discard()
            return Answer(True, f'{name}: discarded; {self.saved}')
        return self._save(request.name == 'success')

    def _start(self) -> Answer:
        if self.bags.is_recording:
            return Answer(False, f'start: {self.bags.name} is being recorded; y or n saves it, d '
                          'discards it')
        self.recording.discover_topics()
        if silent := self.silent:
            return Answer(False, f'start: nobody publishes {", ".join(silent)}: no episode is '
                          'begun')
        # What was received before is not of this episode.
        self.recording.flush()
        self.bags.start(self.get_clock().now().nanoseconds)
        return Answer(True, f'{self.bags.name}: recording: {self._task}')

    def _save(self, success: bool) -> Answer:
        self.recording.flush()
        count = self.bags.count
        path = self.bags.save(EpisodeLabels(self._task, success, self._contract.name))
        return Answer(True, (
            f'{path.name}: saved as a {"success" if success else "failure"}, {count} messages, '
            f'{self.recording.dropped} dropped; {self.saved}'
            + (f'; nobody publishes {", ".join(self.silent)} any more' if self.silent else '')))

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Record until the input ends, ``q``, a signal or a full disk; return the exit status."""
        self.get_logger().info(f'{self.bags.path}: {self.saved}; {HELP}')
        refused = 0
        with EpisodeKeys() as keys:
            # A script cannot see when the robot is discovered.
            patience = time.monotonic() + (0.0 if keys.is_terminal else PATIENCE_S)
            if self.silent and not keys.is_terminal:
                self.get_logger().info(f'waits for {", ".join(self.silent)}')
            while self.silent and not stop.is_set() and time.monotonic() < patience:
                call_back(executor, POLL_S)
            while not stop.is_set() and not (self.failure or self.recording.failure):
                call_back(executor, POLL_S)
                request = keys.read()
                if request is None:
                    continue
                if request.name == 'quit':
                    break
                refused += not (self.on_request(request).done or keys.is_terminal)
        if self.bags.is_recording and not (self.failure or self.recording.failure):
            self.on_request(Request('discard'))
        self.recording.close()
        failure = self.failure or self.recording.failure
        if failure is not None:
            self.get_logger().error(
                f'{self.bags.path}: {getattr(failure, "strerror", failure)}: recording has ended; '
                f'{self.bags.name} is lost, the episodes that were saved are whole')
            return EXIT_DISK
        if refused:
            self.get_logger().error(f'lines of the input that were refused: {refused}')
        return EXIT_REFUSED if refused else EXIT_OK


def parser() -> OneLineParser:
    found = OneLineParser(
        prog='record_episodes', description='Record demonstrations, one bag for each episode.',
        epilog=f'keys: {HELP}')
    found.add_argument('--output', required=True, type=Path,
                       help='folder of the episodes; those that it holds stay')
    found.add_argument('--task', default='move the arm', help='what the robot does, in words')
    found.add_argument('--robot', default='owi535',
                       help='the name of a contract of this package, or its file: its topics are '
                       'recorded (owi535)')
    found.add_argument('--topics', default='',
                       help='more topics to record: shell patterns, separated by commas')
    found.add_argument('--compression', default='none', choices=('none', 'lz4', 'zstd'),
                       help='of the bags (none)')
    policy = found.add_argument_group(
        'episodes of a policy in an environment, instead of a robot\'s topics')
    policy.add_argument('--env', default='', help='id of the environment; --output becomes a '
                        'LeRobot data set of the episodes with success')
    policy.add_argument('--env_modules', default='', metavar='NAMES',
                        help='modules that register environments')
    policy.add_argument('--policy', type=Path, help='checkpoint of a policy of this environment')
    policy.add_argument('--episodes', type=whole_number(1, 1_000_000), default=50,
                        help='how many (50)')
    policy.add_argument('--seed', type=whole_number(0, 2**31 - 1), default=1,
                        help='of the environment (1)')
    policy.add_argument('--time_limit', type=whole_number(0, 2**31 - 1), default=0,
                        help='steps after which an episode is truncated (0: as in its training)')
    return found


def record_policy(options: argparse.Namespace, stop: threading.Event) -> None:
    # Imported here because it takes a second.
    from vdl_ros.demonstrations.env_recorder import record_environment
    from vdl_ros.envs.env_config import EnvModulesConfig
    from vdl_ros.envs.env_modules import import_modules
    from vdl_ros.play.saved_policy import load_policy
    if options.policy is None:
        raise ValueError('--policy: none is given: a checkpoint of a policy of --env')
    say(f'record_episodes: {options.env} into {options.output}')
    with telling('record_episodes: imports and loads'):
        import_modules(EnvModulesConfig(env_modules=options.env_modules))
        policy = load_policy(options.policy, env_id=options.env)
    env = replace(policy.env, time_limit=options.time_limit or policy.env.time_limit)
    count, failures = record_environment(
        policy.act(), env, options.episodes, options.output,
        task=options.task, seed=options.seed, stop=stop, tell=say)
    print(f'{options.output}: {count} episodes; {failures} others without success were left out')


def main(args: Sequence[str] | None = None) -> int:
    options, words = split_words(parser(), args)
    options.output = options.output and options.output.absolute()
    if options.env:
        stop = stop_on_signals()
        with ending_within(_ENDS_WITHIN_S, 'record_episodes', stop):
            status = run_tool('record_episodes', lambda: record_policy(options, stop))
        if stop.is_set():
            print('record_episodes: interrupted', file=sys.stderr)
        return EXIT_INTERRUPTED if stop.is_set() else status
    return RecordEpisodesNode.main(words, options)

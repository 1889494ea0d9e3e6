"""A robot, environments of contracts, and agents, on real topics."""

import threading
import time

import numpy as np
import pytest
import yaml
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from robot_contract import GOOD
from std_msgs.msg import Bool

from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.robots.contract_files import read_contract
from vdl_ros.ros import qos
from vdl_ros.ros.robots import robot_topics
from vdl_ros.ros.robots.robot_env import register, register_robot
from vdl_ros.srv import Confirm


class Robot:
    """A robot whose speed is what it was commanded last; it measures in a thread."""

    def __init__(self, peer, space=''):
        self._peer, self.commands, self.is_silent = peer, [], False
        self._odom = peer.node.create_publisher(Odometry, f'{space}odom', qos.SENSOR)
        self._stop = peer.node.create_publisher(Bool, f'{space}stop', qos.LATCHED)
        peer.node.create_subscription(Twist, f'{space}cmd_vel', self._on_command, 10)

    def _on_command(self, message):
        self.commands.append(message.linear.x)

    def measure(self, stamp=None):
        if self.is_silent:
            return
        message = Odometry()
        message.header.stamp = stamp or self._peer.node.get_clock().now().to_msg()
        message.twist.twist.linear.x = self.commands[-1] if self.commands else 0.0
        self._odom.publish(message)

    def confirm(self, condition, what):
        """Let an environment go on, as a person does, until ``condition``.

        Again after each time for which the machine stood still.
        """
        self._peer.until(condition, what, every=5.0, say=lambda: self._peer.call(
            Confirm, 'robot/confirm', Confirm.Request()))

    def stop(self, stopped=True):
        self._stop.publish(Bool(data=stopped))

    def until_still(self, say=None):
        """Wait for neutral actions only, for longer than a late tick and the topic's timeout."""
        moved = time.monotonic()

        def is_still():
            nonlocal moved
            if not self.commands or self.commands[-1] != 0.0:
                moved = time.monotonic()
            return time.monotonic() > moved + 0.6

        self._peer.until(is_still, 'neutral actions', say=say, every=0.005)


@pytest.fixture
def robot(peer, monkeypatch):
    # There is no other host in this domain.
    monkeypatch.setattr(robot_topics, '_ALONE_S', 0.0)
    return Robot(peer)


@pytest.fixture
def robots(robot, peer):
    """Return two robots of one contract with copies."""
    return [Robot(peer, f'robot_{copy}/') for copy in range(2)]


@pytest.fixture
def make(node, tmp_path):
    stop, made = threading.Event(), []

    def start(takeovers=False, program=None, **changes):
        (tmp_path / 'rewards.py').write_text(
            'def speed(before, after, factor):\n    return factor * after["speed"]\n')
        (tmp_path / 'mine.yaml').write_text(yaml.safe_dump(GOOD | changes))
        register(EnvModulesConfig(robots=str(tmp_path)), node.get_namespace(), stop)
        if program:
            register_robot(read_contract(tmp_path / 'mine.yaml'), node.get_namespace(), stop,
                           agent=program)
        made.append(factory.make(
            EnvConfig(env_id='robot/mine', num_envs=changes.get('copies', 1)), seed=1,
            takeovers=takeovers))
        return made[-1]

    start.stop = stop
    yield start
    for each in made:
        each.close()


class Agent:
    """Steps an environment in a thread, with one action, and keeps what it gets."""

    def __init__(self, env, stop, action=0.5):
        self.env, self.stop, self.action, self.thinks, self.steps = env, stop, action, 0.0, []
        self.over, self.error = threading.Event(), None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            self.env.reset()
            while not self.over.wait(self.thinks):
                self.steps.append(self.env.step(
                    np.full((self.env.num_envs, 1), self.action, np.float32)))
        except (EnvError, EnvStopped) as error:
            self.error = error

    def end(self):
        """End it, in the middle of a step if it must be, and its environment."""
        self.over.set()
        self.stop.set()
        self.thread.join()
        self.env.close()
        self.stop.clear()


@pytest.fixture
def act(make):
    agents = []

    def start(changes=None, **arguments):
        agents.append(Agent(make(**changes or {}), make.stop, **arguments))
        return agents[-1]

    yield start
    for each in agents:
        each.end()

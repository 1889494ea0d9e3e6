"""The policy renderer: plays a training's newest policy in one environment, and publishes images.

Subscribes: ``policy`` (vdl_ros/Policy, latched), for one message every two seconds, while somebody
subscribes to the images.
Publishes: ``policy/image_raw`` (sensor_msgs/Image), at most ``view_rate`` a second;
``/diagnostics``, with the reason while there are none. Without a subscriber it does nothing.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros policy_renderer --help``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image

from vdl_ros.common.settings import select
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.msg import Policy
from vdl_ros.rl.acting.flow_control import LearnerChoice
from vdl_ros.ros import qos
from vdl_ros.ros.diagnostics import Diagnostics, Health
from vdl_ros.ros.messages.images import to_image
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.node_settings import PolicyRendererConfig, ProcessConfig
from vdl_ros.ros.process import (
    EXIT_OK,
    call_back,
    lower_priority,
    make_executor,
    run_node,
    take_settings,
)
from vdl_ros.ros.training.messages import policy_config

if TYPE_CHECKING:
    from vdl_ros.play.player import PolicyPlayer

SETTINGS = (PolicyRendererConfig, EnvModulesConfig, ProcessConfig)
FRAME = 'policy'
# Longest pause between two looks for subscribers, s.
PAUSE_S = 0.2
# Period of taking the newest policy, s: a subscriber of every policy would slow the learner down.
POLICY_S = 2.0
# Silence after which the policy of another learner is taken, s.
PATIENCE_S = 10.0


class PolicyRendererNode(Node):
    """Plays the newest policy while somebody watches.

    Raises:
        SettingError: a parameter that is unknown or not allowed, or a module that cannot be
            imported.
    """

    def __init__(self) -> None:
        super().__init__('policy_renderer')
        given, self.process = take_settings(self, *SETTINGS)
        import_modules(select(EnvModulesConfig, given))
        self._rate = select(PolicyRendererConfig, given).view_rate
        self._choice = LearnerChoice(PATIENCE_S)
        self._subscription: Subscription | None = None
        self._message: Policy | None = None
        self._config: dict[str, Any] = {}
        self._player: PolicyPlayer | None = None
        self._problem = ''
        self._frames = 0
        self._due = self._policy_due = -math.inf
        self._images = qos.create_publisher(self, Image, 'policy/image_raw')
        self._diagnostics = Diagnostics(self, self._health)

    def _health(self) -> Health:
        return self._problem, {'images': self._frames}

    def _on_policy(self, message: Policy) -> None:
        self._message = message

    def pause(self) -> float:
        """Return the time until :meth:`render` has something to do, s."""
        return min(max(self._due - time.monotonic(), 0.0), PAUSE_S)

    def render(self) -> None:
        """Publish an image if it is due and somebody subscribes."""
        watched = self._images.get_subscription_count() > 0
        now = time.monotonic()
        self._subscribe(watched, now)
        if now >= self._due:
            self._due = now + (self._render() if watched else PAUSE_S)

    def _render(self) -> float:
        """Publish an image if that is possible; return the time from it to the next, s."""
        try:
            if self._message is not None:
                message, self._message = self._message, None
                self._load(message)
            if self._player is None:
                return PAUSE_S
            # In real time: several steps an image if the environment is faster.
            steps = max(1, math.ceil(self._player.fps / self._rate))
            image = self._player.play(steps)
        except EnvError as error:
            self.close()
            self._fail(str(error))
            return PAUSE_S
        except ValueError as error:
            # The next policy is tried from the start.
            self.close()
            self._config = {}
            self._fail(f'policy refused: {error}')
            return PAUSE_S
        self._images.publish(to_image(image, self.get_clock().now().to_msg(), FRAME))
        self._frames += 1
        return steps / self._player.fps

    def _subscribe(self, watched: bool, now: float) -> None:
        """Subscribe until the newest policy, which is latched, has come; after a while again."""
        if self._subscription is None:
            if watched and now >= self._policy_due:
                self._subscription = self.create_subscription(
                    Policy, 'policy', self._on_policy, qos.TOPICS['policy'])
        elif not watched or self._message is not None:
            self.destroy_subscription(self._subscription)
            self._subscription, self._policy_due = None, now + POLICY_S

    def _load(self, message: Policy) -> None:
        """Play this policy from now on.

        Raises:
            ValueError: the message is malformed, or its environment cannot be shown.
        """
        if not self._choice.allows(message.learner_id, self.count_publishers('policy')):
            return
        config = policy_config(message)
        if config != self._config:
            self.close()
            # Also if that fails, so that it is not tried with each policy.
            self._config = config
            self._player = make_player(config)
            self.get_logger().info(f'shows {config.get("env_id")}')
        self._choice.stay_with(message.learner_id)
        if self._player is not None:
            self._player.load(from_tensors(message.tensors))
            self._problem = ''

    def _fail(self, problem: str) -> None:
        """Report why there are no images, each reason once."""
        if problem != self._problem:
            self._problem = problem
            self.get_logger().warning(f'no images of the policy: {problem}')

    def close(self) -> None:
        """Close the environment."""
        if self._player is not None:
            self._player.close()
            self._player = None


def make_player(config: Mapping[str, Any]) -> PolicyPlayer:
    """Return the player of a training with these settings.

    Raises:
        ValueError: its environment cannot be shown; see :class:`PolicyPlayer`.
    """
    # Late: PyTorch takes seconds and memory from the training, and perhaps nobody watches.
    import torch

    from vdl_ros.play.player import PolicyPlayer
    torch.set_num_threads(1)
    return PolicyPlayer(config)


def render(node: PolicyRendererNode, stop: threading.Event) -> int:
    """Run callbacks and render in turn."""
    executor = make_executor(node.process.executor)
    executor.add_node(node)
    while not stop.wait(node.pause()):
        call_back(executor, 0.0)
        node.render()
    executor.remove_node(node)
    node.close()
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    lower_priority()
    return run_node('policy_renderer', PolicyRendererNode, render, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())

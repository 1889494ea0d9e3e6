"""The policy renderer: plays a training's newest policy in one environment, and publishes images.

Without a subscriber of the images it does nothing. With one it takes a policy every two seconds;
``/diagnostics`` has the reason while there are no images.
"""

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from rclpy.executors import Executor
from rclpy.subscription import Subscription

from vdl_ros.common.quoting import in_one_line
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.msg import Policy
from vdl_ros.rl.acting.flow_control import LearnerChoice
from vdl_ros.ros.base_node import BaseNode, Diagnostics
from vdl_ros.ros.messages.images import to_image
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.node_settings import PolicyRendererConfig
from vdl_ros.ros.process import EXIT_OK, call_back
from vdl_ros.ros.training.messages import policy_config

if TYPE_CHECKING:
    from vdl_ros.play.player import PolicyPlayer

FRAME = 'policy'
# Longest pause between two looks for subscribers, s.
PAUSE_S = 0.2
# Period of taking the newest policy, s: a subscriber of every policy would slow the learner down.
POLICY_S = 2.0
# Silence after which the policy of another learner is taken, s.
PATIENCE_S = 10.0


class PolicyRendererNode(BaseNode):
    """Plays the newest policy while somebody watches."""

    NAME = 'policy_renderer'
    SETTINGS = (PolicyRendererConfig, EnvModulesConfig)
    IS_BACKGROUND = True
    ENDS_WITHIN_S = 8.0

    def __init__(self) -> None:
        super().__init__()
        import_modules(self.settings(EnvModulesConfig))
        self._rate = self.settings(PolicyRendererConfig).view_rate
        self._choice = LearnerChoice(PATIENCE_S)
        self._subscription: Subscription | None = None
        self._message: Policy | None = None
        self._config: dict[str, Any] = {}
        self._player: PolicyPlayer | None = None
        self._problem = ''
        self._frames = 0
        self._due = self._policy_due = -math.inf
        self._images = self.pub('policy/image_raw')
        Diagnostics(self, lambda: (self._problem, {'images': self._frames}))

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
            self.stop()
            self._fail(str(error))
            return PAUSE_S
        # What a policy names, a network too, may raise anything.
        except Exception as error:
            # The next policy is tried from the start.
            self.stop()
            self._config = {}
            self._fail(f'policy refused: {in_one_line(error)}')
            return PAUSE_S
        self._images.publish(to_image(image, self.stamp(), FRAME))
        self._frames += 1
        return steps / self._player.fps

    def _subscribe(self, watched: bool, now: float) -> None:
        """Subscribe until the newest policy, which is latched, has come; after a while again."""
        if self._subscription is None:
            if watched and now >= self._policy_due:
                self._subscription = self.sub('policy', self._on_policy)
        elif not watched or self._message is not None:
            self.destroy_subscription(self._subscription)
            self._subscription, self._policy_due = None, now + POLICY_S

    def _load(self, message: Policy) -> None:
        learners = self.count_publishers(self.resolve_topic_name('policy'))
        if not self._choice.allows(message.learner_id, learners):
            return
        config = policy_config(message)
        if config != self._config:
            self.stop()
            # Also if that fails, so that it is not tried with each policy.
            self._config = config
            # Late: PyTorch takes seconds and memory from the training, and perhaps nobody watches.
            import torch

            from vdl_ros.play.player import PolicyPlayer
            torch.set_num_threads(1)
            self._player = PolicyPlayer(config)
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

    def work(self, executor: Executor, stop: threading.Event) -> int:
        while not stop.wait(self.pause()):
            call_back(executor, 0.0)
            self.render()
        return EXIT_OK

    def stop(self) -> None:
        if self._player is not None:
            self._player.close()
            self._player = None


main = PolicyRendererNode.main

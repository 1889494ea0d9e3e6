"""The evaluator: plays a training's policies in environments of its own, while they are trained.

Settings of environment, attack and number of episodes come from the learner, that of its launch
if it has one, modules of environments from this host.
"""

import threading
from typing import Any

import torch
from rclpy.executors import Executor
from std_msgs.msg import Header

from vdl_ros.attacks.attack_config import SurrogateConfig
from vdl_ros.common.quoting import in_one_line
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.msg import Evaluation
from vdl_ros.play.evaluator import PolicyEvaluator
from vdl_ros.ros.base_node import BaseNode, Diagnostics
from vdl_ros.ros.messages.tensors import from_tensors
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.process import EXIT_OK, call_back
from vdl_ros.ros.training.actor import PolicyInbox
from vdl_ros.ros.training.messages import policy_config, to_episode

# Pause between two looks for a policy, s.
PAUSE_S = 0.1
# Time without a policy after which that of another learner is evaluated, s.
PATIENCE_S = 60.0


class EvaluatorNode(BaseNode):
    """Evaluates the newest policy of its learner."""

    NAME = 'evaluator'
    SETTINGS = (EnvModulesConfig, SurrogateConfig)
    IS_BACKGROUND = True
    ENDS_WITHIN_S = 8.0

    def __init__(self) -> None:
        super().__init__()
        import_modules(self.settings(EnvModulesConfig))
        self._surrogate = self.settings(SurrogateConfig)
        torch.set_num_threads(1)
        self._config: dict[str, Any] = {}
        self._evaluator: PolicyEvaluator | None = None
        self._problem, self._count = '', 0
        self._evaluations = self.pub('evaluations')
        Diagnostics(self, lambda: (self._problem, {'evaluations': self._count}))
        self._policies = PolicyInbox(
            self, 'evaluated_policy', PATIENCE_S, self.settings(ProcessConfig).launch_id)

    def evaluate(self, stop: threading.Event) -> None:
        message = self._policies.take()
        if message is None:
            return
        result = Evaluation(learner_id=message.learner_id, version=message.version,
                            agent_steps=message.agent_steps)
        try:
            found = self._make_evaluator(policy_config(message)).evaluate(
                from_tensors(message.tensors), stop, self.get_logger().info)
            if found is None:
                return
            self._policies.choice.stay_with(message.learner_id)
            self._problem, self._count = '', self._count + 1
            result.episodes = [to_episode(
                each, stamp=self.get_clock().now(), actor_id=self.get_fully_qualified_name(),
                policy_version=message.version) for each in found.episodes]
        # What a policy names, an environment and a network, may raise anything.
        except Exception as error:
            # The next policy is tried from the start.
            self.stop()
            result.problem = self._problem = in_one_line(error)
            self.get_logger().warning(f'policy not evaluated: {self._problem}')
        result.header = Header(stamp=self.stamp())
        self._evaluations.publish(result)

    def _make_evaluator(self, config: dict[str, Any]) -> PolicyEvaluator:
        """Return the evaluator of a training with these settings, the same one for the same."""
        if self._evaluator is None or config != self._config:
            self.stop()
            self._evaluator, self._config = PolicyEvaluator(config, self._surrogate), config
            self.get_logger().info(f'evaluates {config.get("env_id")}')
        return self._evaluator

    def stop(self) -> None:
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None

    def work(self, executor: Executor, stop: threading.Event) -> int:
        while not stop.is_set():
            call_back(executor, PAUSE_S)
            self.evaluate(stop)
        return EXIT_OK


main = EvaluatorNode.main

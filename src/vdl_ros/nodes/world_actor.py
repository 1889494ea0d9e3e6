"""The actor of several agents in one world: each body acts by the policy of its agent's learner.

A world of PettingZoo's parallel API, such as mpe2/simple_tag_v3. Each agent is a learner in a
namespace of its own, whose setting ``bodies`` names its bodies; bodies of no learner act at
random. An agent whose learner is gone acts with its last policy.
"""

import threading

from rclpy.executors import Executor

from vdl_ros.common.metrics import ACTING, ThreadTimer
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.recipes.agents_file import check_agent_name
from vdl_ros.ros.base_node import BaseNode
from vdl_ros.ros.node_settings import WorldActorConfig
from vdl_ros.ros.process import EXIT_OK, call_back
from vdl_ros.ros.statistics.statistics import ThreadTimeStatistics
from vdl_ros.ros.training.actor import THREADS
from vdl_ros.ros.training.world_actors import WorldActors


class WorldActorNode(BaseNode):
    """Receives the policies of several learners, and publishes trajectories for each."""

    NAME = 'world_actor'
    SETTINGS = (WorldActorConfig, EnvModulesConfig)
    ENDS_WITHIN_S = 8.0

    def __init__(self) -> None:
        super().__init__()
        import_modules(self.settings(EnvModulesConfig))
        settings = self.settings(WorldActorConfig)
        names = [each.strip() for each in settings.agents.split(',') if each.strip()]
        for name in names:
            check_agent_name(name)
        if not names or len(set(names)) != len(names):
            raise SettingError(f'agents: {settings.agents!r} is not allowed: names of different '
                               'agents, such as chaser,prey')
        self.timer = ThreadTimer()
        self.actors = WorldActors(
            self, names, settings.actor_id or self.unique_name, threads=THREADS,
            credit_timeout=settings.credit_timeout, timer=self.timer)
        self._time_statistics = ThreadTimeStatistics(self, {ACTING: self.timer})

    def work(self, executor: Executor, stop: threading.Event) -> int:
        """Act and run callbacks in turn: policies are loaded only between two unrolls."""
        self.get_logger().info('waiting for the policies of all agents')
        self.actors.stop = stop
        acted = False
        while not stop.is_set():
            with self.timer.executor_wait():
                call_back(executor, 0.0 if acted else 0.1)
            acted = self.actors.act()
        return EXIT_OK

    def stop(self) -> None:
        self.actors.close()


main = WorldActorNode.main

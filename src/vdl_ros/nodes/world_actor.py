"""The actor of several agents in one world: each body acts by the policy of its agent's learner.

A world of PettingZoo's parallel API, such as mpe2/simple_tag_v3. Each agent is a learner in a
namespace of its own, whose setting ``bodies`` names its bodies; bodies of no learner act at
random. For each AGENT in ``agents``: subscribes to ``AGENT/policy`` (vdl_ros/Policy, latched) and
``AGENT/learner_busy``; publishes ``AGENT/trajectories`` (vdl_ros/Trajectory) and
``AGENT/episodes`` (vdl_ros/Episode). ``/statistics``, also of its thread time. An agent whose
learner is gone acts with its last policy.
Parameters: docs/nodes.md, or ``ros2 run vdl_ros world_actor --help``.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence

from rclpy.node import Node

from vdl_ros.common.metrics import ACTING, ThreadTimer
from vdl_ros.common.settings import SettingError, select
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.recipes.agents_file import check_agent_name
from vdl_ros.ros.node_settings import ProcessConfig, WorldActorConfig
from vdl_ros.ros.process import EXIT_OK, call_back, make_executor, run_node, take_settings
from vdl_ros.ros.statistics.statistics import ThreadTimeStatistics
from vdl_ros.ros.training.world_actors import WorldActors

SETTINGS = (WorldActorConfig, EnvModulesConfig, ProcessConfig)


class WorldActorNode(Node):
    """Receives the policies of several learners, and publishes trajectories for each.

    Raises:
        SettingError: a parameter that is unknown or not allowed, or a module that cannot be
            imported.
    """

    def __init__(self) -> None:
        super().__init__('world_actor')
        given, self.process = take_settings(self, *SETTINGS)
        import_modules(select(EnvModulesConfig, given))
        settings = select(WorldActorConfig, given)
        names = [each.strip() for each in settings.agents.split(',') if each.strip()]
        for name in names:
            check_agent_name(name)
        if not names or len(set(names)) != len(names):
            raise SettingError(f'agents: {settings.agents!r} is not allowed: names of different '
                               'agents, such as chaser,prey')
        self.timer = ThreadTimer()
        self.actors = WorldActors(
            self, names, settings.actor_id or (
                f'{socket.gethostname()}{self.get_fully_qualified_name()}_{os.getpid()}'),
            num_worlds=settings.num_worlds, threads=settings.actor_threads,
            credit_timeout=settings.credit_timeout, timer=self.timer)
        self._time_statistics = ThreadTimeStatistics(self, {ACTING: self.timer})


def act(node: WorldActorNode, stop: threading.Event) -> int:
    """Act and run callbacks in turn: policies are loaded only between two unrolls."""
    executor = make_executor(node.process.executor)
    executor.add_node(node)
    node.get_logger().info('waiting for the policies of all agents')
    acted = False
    try:
        while not stop.is_set():
            with node.timer.executor_wait():
                call_back(executor, 0.0 if acted else 0.1)
            acted = node.actors.act()
    finally:
        node.actors.close()
    executor.remove_node(node)
    return EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run_node('world_actor', WorldActorNode, act, SETTINGS, args)


if __name__ == '__main__':
    raise SystemExit(main())

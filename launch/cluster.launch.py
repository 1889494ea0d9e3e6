"""Train over several hosts: start learners and actors by a hosts file, and stop all at the end.

It is ``ros2 run vdl_ros cluster start --watch`` as a launch. See docs/cluster.md.
"""

from vdl_ros.attacks.attack_config import SurrogateConfig
from vdl_ros.cluster.plan import ClusterConfig
from vdl_ros.common.settings import as_text, select
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.tools.cluster import DERIVED, FIRST, OF_EVERY_TASK

SETTINGS = (ClusterConfig, *FIRST, SurrogateConfig)
ARGUMENTS = [*(each for each in launch_arguments.declare(*SETTINGS) if each.name not in DERIVED),
             launch_arguments.CONFIG]
# Beyond stop_timeout: SIGTERM and SIGKILL on the hosts, and bringing files home, s.
BRINGING_S = 120.0


def start(context):
    given = launch_arguments.given(context, *SETTINGS)
    words = [f'{name}:={as_text(value)}' for name, value in given.items()]
    words += [f'{name}:={text}' for name in OF_EVERY_TASK
              if (text := context.launch_configurations[name])]
    timeout = select(ClusterConfig, given).stop_timeout + BRINGING_S
    return launch_nodes.watched([launch_nodes.program(
        'cluster', 'start', '--watch', '--with-parent', *words, sigterm_timeout=str(timeout))])


def generate_launch_description():
    return launch_nodes.described('cluster.launch.py', ARGUMENTS, SETTINGS, start)

"""Evaluate a trained policy: print mean and spread of its returns; optionally record a video."""

from functools import partial

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.rl.settings import EvaluateConfig
from vdl_ros.ros import launch_arguments, launch_nodes

SETTINGS = (EvaluateConfig, EnvModulesConfig, AttackConfig, SurrogateConfig)
ARGUMENTS = [*launch_arguments.declare(*SETTINGS), launch_arguments.RECORD]


def start(context):
    given = launch_arguments.given(context, *SETTINGS, node='evaluate')
    evaluate = launch_nodes.node(context, 'evaluate', given, SETTINGS, 'evaluate')
    return [*launch_nodes.announced(context),
            *launch_nodes.watched([evaluate], partial(launch_nodes.end_all, asked=True),
                                  start=launch_nodes.with_children),
            *launch_nodes.recorder(context)]


def generate_launch_description():
    return launch_nodes.described('evaluate.launch.py', ARGUMENTS, SETTINGS, start, local=True)

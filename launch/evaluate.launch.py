"""Evaluate a trained policy: print mean and spread of its returns; optionally record a video."""

from functools import partial

from launch import LaunchDescription
from launch.actions import OpaqueFunction, RegisterEventHandler, SetEnvironmentVariable
from launch.event_handlers import OnProcessExit
from launch_ros.actions import Node

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.rl.acting.evaluation_config import EvaluateConfig
from vdl_ros.ros import launch_arguments

SETTINGS = (EvaluateConfig, EnvModulesConfig, AttackConfig, SurrogateConfig)
ARGUMENTS = [*launch_arguments.declare(*SETTINGS), launch_arguments.RECORD]


def start(context):
    """Start the evaluation; the launch ends with it."""
    launch_arguments.reject_unknown_arguments(
        context, 'evaluate.launch.py', [each.name for each in ARGUMENTS])
    evaluate = Node(
        package='vdl_ros', executable='evaluate', name='evaluate', output='screen',
        parameters=[launch_arguments.parameters(launch_arguments.given(context, *SETTINGS))])
    return [
        *launch_arguments.announced(context),
        RegisterEventHandler(OnProcessExit(
            target_action=evaluate,
            on_exit=partial(launch_arguments.end_with, on_success=True))),
        evaluate,
        *launch_arguments.recorder(context),
    ]


def generate_launch_description():
    """Return the launch description."""
    return LaunchDescription([
        *ARGUMENTS,
        SetEnvironmentVariable('RCUTILS_CONSOLE_OUTPUT_FORMAT', '[{severity}] {message}'),
        OpaqueFunction(function=start),
    ])

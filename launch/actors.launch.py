"""
Start actors only, for training on several hosts.

With several learners, the actors are assigned to them in turn.
"""

import socket
from functools import partial

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch_ros.actions import Node

from vdl_ros.common.settings import Setting
from vdl_ros.rl.acting.actor_config import ActorConfig
from vdl_ros.ros import launch_arguments
from vdl_ros.ros.launch_restarts import restarted
from vdl_ros.ros.process_config import ProcessConfig

SETTINGS = (ActorConfig, ProcessConfig)
NUMBERS = (
    Setting('num_actors', int, 2, 'Number of actors to start.', minimum=1, maximum=256),
    Setting('num_learners', int, 1, 'Learners that the actors are assigned to, in turn.',
            minimum=1, maximum=64),
    Setting('learner_rank', int, -1, 'Learner of all actors; -1: assign them in turn.',
            minimum=-1, maximum=63))


def start(context):
    """Start the actors; an actor that fails is restarted."""
    launch_arguments.reject_unknown_arguments(
        context, 'actors.launch.py', [each.name for each in ARGUMENTS])
    given = launch_arguments.given(context, *SETTINGS)
    prefix = given.pop('actor_id', f'{socket.gethostname()}_actor')
    count, learners, rank = (
        each.parse(context.launch_configurations[each.name]) for each in NUMBERS)
    actors = [
        restarted(partial(
            Node, package='vdl_ros', executable='actor', name=f'actor_{index}', output='screen',
            remappings=launch_arguments.of_learner(index % learners if rank < 0 else rank),
            parameters=[given | {'actor_id': f'{prefix}_{index}', 'launch_id': 'actors'}],
        ), on_success=False)
        for index in range(count)]
    return [*launch_arguments.announced(context), *actors, *launch_arguments.recorder(context)]


ARGUMENTS = [
    *(DeclareLaunchArgument(each.name, default_value=str(each.default),
                            description=f'{each.doc} ({each.allowed})') for each in NUMBERS),
    *launch_arguments.declare(*SETTINGS),
    launch_arguments.RECORD,
]


def generate_launch_description():
    """Return the launch description."""
    return LaunchDescription([
        *ARGUMENTS,
        SetEnvironmentVariable('RCUTILS_CONSOLE_OUTPUT_FORMAT', '[{severity}] {message}'),
        OpaqueFunction(function=start),
    ])

"""
Start actors only, for training on several hosts.

With several learners, the actors are assigned to them in turn.
"""

import socket
from dataclasses import dataclass
from functools import partial

from launch import LaunchDescription
from launch.actions import OpaqueFunction, SetEnvironmentVariable
from launch_ros.actions import Node

from vdl_ros.attacks.attack_config import SurrogateConfig
from vdl_ros.common.settings import select, setting
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.rl.acting.actor_config import ActorConfig
from vdl_ros.ros import launch_arguments
from vdl_ros.ros.launch_restarts import restarted
from vdl_ros.ros.process_config import ProcessConfig

SETTINGS = (ActorConfig, EnvModulesConfig, SurrogateConfig, ProcessConfig)


@dataclass(frozen=True)
class Numbers:
    """How many actors there are, and for which learners."""

    num_actors: int = setting(2, 'Number of actors to start.', minimum=1, maximum=256)
    num_learners: int = setting(
        1, 'Learners that the actors are assigned to, in turn.', minimum=1, maximum=64)
    learner_rank: int = setting(
        -1, 'Learner of all actors; -1: assign them in turn.', minimum=-1, maximum=63)


def start(context):
    """Start the actors; an actor that fails is restarted."""
    launch_arguments.reject_unknown_arguments(
        context, 'actors.launch.py', [each.name for each in ARGUMENTS])
    given = launch_arguments.given(context, *SETTINGS)
    if context.launch_configurations.get('record'):
        given['await_recorder'] = True
    prefix = given.pop('actor_id', f'{socket.gethostname()}_actor')
    numbers = select(Numbers, launch_arguments.given(context, Numbers))
    ranks = [index % numbers.num_learners if numbers.learner_rank < 0 else numbers.learner_rank
             for index in range(numbers.num_actors)]
    actors = [
        restarted(partial(
            Node, package='vdl_ros', executable='actor', name=f'actor_{index}', output='screen',
            remappings=launch_arguments.of_learner(rank),
            parameters=[launch_arguments.parameters(
                given | {'actor_id': f'{prefix}_{index}', 'launch_id': 'actors'})],
        ), on_success=False)
        for index, rank in enumerate(ranks)]
    return [*launch_arguments.announced(context), *actors, *launch_arguments.recorder(context)]


ARGUMENTS = [
    *launch_arguments.declare(Numbers, *SETTINGS),
    launch_arguments.CONFIG,
    launch_arguments.RECORD,
]


def generate_launch_description():
    """Return the launch description."""
    return LaunchDescription([
        *ARGUMENTS,
        SetEnvironmentVariable('RCUTILS_CONSOLE_OUTPUT_FORMAT', '[{severity}] {message}'),
        OpaqueFunction(function=start),
    ])

"""A whole training on this machine: one learner and its actors."""

from launch import LaunchDescription
from launch.actions import (
    GroupAction,
    IncludeLaunchDescription,
    OpaqueFunction,
    SetEnvironmentVariable,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import EnvironmentVariable, PathJoinSubstitution
from launch_ros.substitutions import FindPackageShare

from vdl_ros.envs.config import EnvConfig
from vdl_ros.rl.config import RunConfig, TrainConfig
from vdl_ros.ros import launch_arguments
from vdl_ros.ros.process import ProcessConfig

RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
ARGUMENTS = [*launch_arguments.declare(EnvConfig, TrainConfig, RunConfig, ProcessConfig),
             launch_arguments.RECORD]


def check(context):
    """Refuse mistyped arguments before anything starts."""
    launch_arguments.refuse_typing_errors(
        context, 'train.launch.py', [each.name for each in ARGUMENTS])


def include(file, **arguments):
    """Return the inclusion of a launch file of this package."""
    path = PathJoinSubstitution([FindPackageShare('vdl_ros'), 'launch', file])
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(path), launch_arguments=arguments.items())


def generate_launch_description():
    """Return the launch description."""
    return LaunchDescription([
        *ARGUMENTS,
        OpaqueFunction(function=check),
        # Everything is on this machine: no need to be heard by others, and shared memory serves.
        SetEnvironmentVariable(
            RANGE, EnvironmentVariable(RANGE, default_value='LOCALHOST')),
        include('learner.launch.py'),
        # The actors hear from the learner what to act in, also when it resumes another run.
        GroupAction([include('actors.launch.py', env_id='', num_envs='0', record='')]),
    ])

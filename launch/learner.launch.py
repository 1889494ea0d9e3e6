"""
Start one learner only, for training on several hosts.

With num_learners > 1, start one launch for each learner_rank, on this host or others.
"""

from launch import LaunchDescription
from launch.actions import OpaqueFunction, SetEnvironmentVariable
from launch_ros.actions import Node

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.common.run_files import unique_name
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.rl.algorithm_config import ALGORITHM_SETTINGS
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder_config import RunFolderConfig
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import launch_arguments
from vdl_ros.ros.launch_restarts import restarted
from vdl_ros.ros.process_config import ProcessConfig

SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
            AttackConfig, RunConfig, RunFolderConfig, ProcessConfig)


def start(context):
    """Start the learner; if it fails it is restarted and resumes from its checkpoint."""
    launch_arguments.reject_unknown_arguments(
        context, 'learner.launch.py', [each.name for each in ARGUMENTS])
    given = launch_arguments.given(context, *SETTINGS)
    rank = given.get('learner_rank', 0)
    single = given.get('num_learners', 1) == 1
    parameters = launch_arguments.parameters(given) | {'launch_id': unique_name()}
    learner = restarted(lambda: Node(
        package='vdl_ros', executable='learner', name='learner' if single else f'learner_{rank}',
        output='screen', remappings=launch_arguments.of_learner(rank), parameters=[parameters],
        sigterm_timeout=launch_arguments.SAVING_S), on_success=True)
    return [*launch_arguments.announced(context), learner, *launch_arguments.recorder(context)]


ARGUMENTS = [
    *launch_arguments.declare(*SETTINGS), launch_arguments.CONFIG, launch_arguments.RECORD]


def generate_launch_description():
    """Return the launch description."""
    return LaunchDescription([
        *ARGUMENTS,
        SetEnvironmentVariable('RCUTILS_CONSOLE_OUTPUT_FORMAT', '[{severity}] {message}'),
        OpaqueFunction(function=start),
    ])

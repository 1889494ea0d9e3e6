"""Start one learner only, for training on several hosts.

With num_learners > 1, start one launch for each learner_rank, on this host or others.
"""

from functools import partial

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.common.files import unique_name
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.launch_nodes import restarted
from vdl_ros.ros.node_settings import ProcessConfig

SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
            AttackConfig, RunConfig, RunFolderConfig, ProcessConfig)


def start(context):
    given = launch_arguments.given(context, *SETTINGS, node='learner')
    rank = given.get('learner_rank', 0)
    single = given.get('num_learners', 1) == 1
    # train.launch.py has it for the evaluator too.
    launch_id = context.launch_configurations.get('launch_id') or unique_name()
    learner = restarted(partial(
        launch_nodes.node, context, 'learner', given, SETTINGS, launch_id,
        name='learner' if single else f'learner_{rank}', remappings=launch_nodes.of_learner(rank),
        sigterm_timeout=launch_nodes.SAVING_S), on_success=True)
    return [*launch_nodes.announced(context), learner, *launch_nodes.recorder(context)]


ARGUMENTS = [
    *launch_arguments.declare(*SETTINGS), launch_arguments.CONFIG, launch_arguments.RECORD]


def generate_launch_description():
    return launch_nodes.described('learner.launch.py', ARGUMENTS, SETTINGS, start)

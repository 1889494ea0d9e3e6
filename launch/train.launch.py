"""Train a policy on this machine: start learners, and actors or the player of a bag.

With algorithm:=bc the learner reads demonstrations, and there are no actors.

Without env_id, algorithm or resume: the reach of the arm, with ppo.
"""

import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launch.actions import GroupAction, IncludeLaunchDescription, LogInfo
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import PathJoinSubstitution
from launch_ros.substitutions import FindPackageShare

from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig, verify_attack
from vdl_ros.common.files import unique_name
from vdl_ros.common.settings import SettingError, select, setting
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.factory import ROBOT
from vdl_ros.envs.registration import REACH
from vdl_ros.recipes import config_file
from vdl_ros.rl.runs.run_config import (
    RunConfig,
    RunFolderConfig,
    check_unfinished,
    default_run_dir,
    verify_run,
)
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.launch_nodes import restarted
from vdl_ros.ros.node_settings import (
    BlackBoxConfig,
    PlayConfig,
    PolicyRendererConfig,
    ProcessConfig,
    TrainingViewerConfig,
)


@dataclass(frozen=True)
class Watching:
    """What shows the training while it runs."""

    view: bool = setting(
        False, 'Show the training in a browser: curves, what limits its speed, and the policy '
        'that acts.')
    tensorboard: bool = setting(
        False, 'Start TensorBoard for the run, on 127.0.0.1 only; it ends with the launch.')
    tensorboard_port: int = setting(
        0, 'Port of TensorBoard; 0: any free one.', minimum=0, maximum=65535)


@dataclass(frozen=True)
class Source:
    """What is learned from instead of actors."""

    bag: str = setting(
        '', 'Learn again from the trajectories of a recorded training, to the end of this bag: '
        'its folder, or its .mcap file; empty: from actors.')


SETTINGS = (EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
            AttackConfig, SurrogateConfig, RunConfig, RunFolderConfig, ProcessConfig)
# Nodes of the view with their settings.
VIEWERS = {'training_viewer': (TrainingViewerConfig, ProcessConfig),
           'policy_renderer': (PolicyRendererConfig, EnvModulesConfig, ProcessConfig)}
EVALUATOR = (EnvModulesConfig, SurrogateConfig, ProcessConfig)
SHOWN = (Watching, Source, TrainingViewerConfig, PolicyRendererConfig, BlackBoxConfig)
ARGUMENTS = [
    *launch_arguments.declare(*SETTINGS, *SHOWN), launch_arguments.CONFIG,
    launch_arguments.RECORD]


def include(file, **arguments):
    path = PathJoinSubstitution([FindPackageShare('vdl_ros'), 'launch', file])
    # Its nodes are in the namespace of this file already.
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(path),
        launch_arguments=(arguments | {'namespace': ''}).items())


def start(context):
    given = launch_arguments.given(context, *SETTINGS, *SHOWN, node='learner')
    given = config_file.settings_of_init(given) | given
    watching = select(Watching, given)
    # Without a word about the task, the arm learns to reach.
    task = {} if given.keys() & {'env_id', 'algorithm', 'resume'} else {'env_id': REACH}
    bag = select(Source, given).bag
    if given.get('relearn') and not bag:
        raise SettingError('relearn: true is not allowed without bag: the bag to learn from')
    if given.get('learner_rank', 0):
        raise SettingError(f'learner_rank: {given["learner_rank"]} is not allowed: '
                           'train.launch.py starts every learner; see learner.launch.py')
    # Only here: elsewhere a user, or a hosts file, says how many there are.
    resumed = config_file.saved_settings(
        Path(given['resume']), given, more=config_file.PROCESSES) if given.get('resume') else {}
    if resumed:
        check_unfinished(Path(given['resume']), select(TrainConfig, resumed | given).total_steps)
    # The launch knows both: the learner does not know what its actors have.
    verify_attack(*(select(each, resumed | given)
                    for each in (AttackConfig, TrainConfig, SurrogateConfig)))
    env_id = str(given.get('env_id') or resumed.get('env_id', ''))
    cloning = (given.get('algorithm') or resumed.get('algorithm')) == 'bc'
    numbers = {}
    # One actor has all robots of a contract; demonstrations count as one actor.
    if cloning or env_id.startswith(ROBOT):
        if given.get('num_actors', 1) != 1:
            reason = "algorithm 'bc'" if cloning else env_id
            raise SettingError(f'num_actors: {given["num_actors"]} is not allowed with '
                               f'{reason}: 1')
        resumed.pop('num_actors', None)
        numbers['num_actors'] = '1'
    of_run = {name: resumed[name] for name in config_file.PROCESSES
              if name in resumed and name not in given}
    numbers |= {name: str(value) for name, value in of_run.items()}
    given |= of_run
    count = given.get('num_learners', 1)
    address = given.get('group_address') or (free_address() if count > 1 else '')
    verify_run(select(RunConfig, given | {name: int(value) for name, value in numbers.items()} | {
        'group_address': address, 'relearn': bool(bag)}))
    if watching.tensorboard and not (given.get('run_dir') or given.get('resume')):
        # Named here, because TensorBoard needs the name too.
        given['run_dir'] = task['run_dir'] = default_run_dir(
            select(EnvConfig, given | task).env_id, unique_name())
    launch_id = unique_name()
    learners = [
        GroupAction([include('learner.launch.py', learner_rank=str(rank), group_address=address,
                             launch_id=launch_id, relearn=str(bool(bag)).lower(), **task,
                             **numbers,
                             **({'record': ''} if rank else {}))])
        for rank in range(count)]
    sources = player(context, bag) if bag else [] if cloning else [
        actors(context, numbers, launch_id)]
    said = [LogInfo(msg='as the run before: ' + ', '.join(
        f'{name}:={value}' for name, value in of_run.items()))] if of_run else []
    return [*said, *learners, *sources, *evaluator(context, resumed | given, launch_id),
            *watchers(context, watching, given),
            *(launch_nodes.black_box(context) if env_id.startswith(ROBOT) else [])]


def actors(context, numbers, launch_id):
    recorded = bool(context.launch_configurations.get('record'))
    # Also when it resumes another run.
    return GroupAction([include(
        'actors.launch.py', num_envs='0', record='', learner_rank='-1',
        await_recorder=str(recorded).lower(), launch_id=launch_id, **numbers)])


def evaluator(context, given, launch_id):
    """Return what evaluates policies, if any are to be; the training does not depend on it."""
    if not select(TrainConfig, given).eval_every:
        return []
    return [restarted(
        partial(launch_nodes.node, context, 'evaluator', given, EVALUATOR, launch_id),
        on_success=False, needed=False)]


def player(context, bag):
    """Return the player of the bag; the launch ends with the learner, or with its failure."""
    process = launch_nodes.node(
        context, 'player', {'bag': bag}, (PlayConfig, ProcessConfig), 'train', relearn=True)

    def on_exit(event, context):
        return launch_nodes.end_all(event, context) if event.returncode else None

    return launch_nodes.watched([process], on_exit)


def watchers(context, watching, given):
    """Return what shows the training; only bad settings of these end the launch, not their end."""
    processes = [
        launch_nodes.node(context, name, given, settings, 'train')
        for name, settings in VIEWERS.items() if watching.view]
    if watching.tensorboard:
        processes.append(launch_nodes.program(
            'tensorboard', given.get('resume') or given['run_dir'],
            '--port', str(watching.tensorboard_port), '--with-parent'))
    return launch_nodes.watched(processes, partial(launch_nodes.end_with, on_success=False),
                                start=launch_nodes.with_children)


def free_address():
    with socket.create_server(('127.0.0.1', 0)) as free:
        return f'127.0.0.1:{free.getsockname()[1]}'


def generate_launch_description():
    return launch_nodes.described(
        'train.launch.py', ARGUMENTS, (*SETTINGS, *SHOWN), start, local=True)

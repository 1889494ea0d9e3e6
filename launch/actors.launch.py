"""Start actors only, for training on several hosts.

With several learners, the actors are assigned to them in turn.
"""

import secrets
import socket
from dataclasses import dataclass
from functools import partial

from vdl_ros.attacks.attack_config import SurrogateConfig
from vdl_ros.common.settings import select, setting
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.rl.settings import ActorConfig
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.dds.transport import reaches_other_hosts
from vdl_ros.ros.launch_nodes import restarted
from vdl_ros.ros.node_settings import ONLY_ACTORS, ProcessConfig

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
    given = launch_arguments.given(context, *SETTINGS)
    if context.launch_configurations.get('record'):
        given['await_recorder'] = True
    numbers = select(Numbers, launch_arguments.given(context, Numbers))
    ranks = [index % numbers.num_learners if numbers.learner_rank < 0 else numbers.learner_rank
             for index in range(numbers.num_actors)]
    # train.launch.py has that of the learner.
    launch_id, name = context.launch_configurations.get('launch_id', ''), 'actor'
    if not launch_id:
        launch_id = f'{ONLY_ACTORS}{secrets.token_hex(8)}'
        # Of another launch on this host, or on a copy of it, the names are others.
        name = f'actor_{launch_id[-4:]}'
    prefix = given.pop('actor_id', f'{socket.gethostname()}_{name}')
    relay, relayed = [], []
    # Each policy crosses the network once.
    if len(ranks) > 1 and reaches_other_hosts(context.environment):
        topic = f'policy/relay_{secrets.token_hex(4)}'
        relayed = [('policy', topic)]
        relay = [restarted(partial(
            launch_nodes.node, context, 'policy_relay', given, (ProcessConfig,), launch_id,
            remappings=[('relayed_policy', topic)]), on_success=False)]
    actors = [
        restarted(partial(
            launch_nodes.node, context, 'actor', given, SETTINGS, launch_id,
            name=f'{name}_{index}', actor_id=f'{prefix}_{index}',
            remappings=[*launch_nodes.of_learner(rank), *relayed],
        ), on_success=False)
        for index, rank in enumerate(ranks)]
    return [*launch_nodes.announced(context), *relay, *actors, *launch_nodes.recorder(context)]


ARGUMENTS = [
    *launch_arguments.declare(Numbers, *SETTINGS),
    launch_arguments.CONFIG,
    launch_arguments.RECORD,
]


def generate_launch_description():
    return launch_nodes.described('actors.launch.py', ARGUMENTS, SETTINGS, start)

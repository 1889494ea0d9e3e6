"""Settings of one actor."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['ActorConfig']


@dataclass(frozen=True)
class ActorConfig:
    """Settings of one actor; it receives all others from the learner."""

    actor_id: str = setting(
        '', 'Name of this actor, unique in the graph; empty: made of host, node and process.')
    env_id: str = setting(
        '', 'Act only in this environment; empty: the one that the learner trains on.')
    num_envs: int = setting(
        0, 'Environments of this actor; 0: the number that the learner sets.',
        minimum=0, maximum=4096)
    actor_threads: int = setting(
        1, 'CPU threads for the actor\'s network.', minimum=1, maximum=256)
    await_recorder: bool = setting(
        False, 'Send the first trajectory only once a recorder subscribes too, so that its bag '
        'holds the training from its start; the argument record of a launch sets it.')
    credit_timeout: float = setting(
        10.0, 'Time without a policy, or without credit while the learner goes on with the '
        'trajectories of others, after which the oldest pending trajectory counts as lost.',
        minimum=0.1, maximum=1e6, unit='s')

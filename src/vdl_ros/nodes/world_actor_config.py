"""Settings of the actor of several agents."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['WorldActorConfig']


@dataclass(frozen=True)
class WorldActorConfig:
    """Settings of the actor of several agents in one world; their learners have all others."""

    agents: str = setting('', 'Namespaces of the learners, such as chaser,prey.')
    actor_id: str = setting('', 'Unique name; empty: made of host, node and process.')
    num_worlds: int = setting(
        0, 'Worlds of this actor; 0: num_envs of the learners.', minimum=0, maximum=4096)
    actor_threads: int = setting(1, 'CPU threads for the networks.', minimum=1, maximum=256)
    credit_timeout: float = setting(
        10.0, 'Without a policy, or credit while a learner goes on, the oldest trajectory counts '
        'as lost after this.', minimum=0.1, maximum=1e6, unit='s')

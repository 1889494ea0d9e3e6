"""Settings of one actor."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['ActorConfig']


@dataclass(frozen=True)
class ActorConfig:
    """Settings of one actor; it receives all others from the learner."""

    actor_id: str = setting('', 'Unique name; empty: made of host, node and process.')
    env_id: str = setting('', 'Act only in this environment; empty: any.')
    num_envs: int = setting(
        0, 'Environments of this actor; 0: as the learner sets.', minimum=0, maximum=4096)
    actor_threads: int = setting(1, 'CPU threads for the network.', minimum=1, maximum=256)
    await_recorder: bool = setting(
        False, 'Start to send once a recorder subscribes; the argument record of a launch sets '
        'it.')
    credit_timeout: float = setting(
        10.0, 'Without a policy, or credit while the learner goes on, the oldest trajectory '
        'counts as lost after this.', minimum=0.1, maximum=1e6, unit='s')

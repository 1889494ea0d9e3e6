"""Settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['EvaluateConfig']


@dataclass(frozen=True)
class EvaluateConfig:
    """Settings of an evaluation."""

    checkpoint: str = setting(
        '', 'Checkpoint with the policy: a file, or the folder of a run: its best.pt, '
        'without one checkpoint.pt.')
    env_id: str = setting(
        '', 'Reject a policy that was trained in another environment; empty: any.')
    algorithm: str = setting('', 'Reject a policy of another algorithm; empty: any.')
    episodes: int = setting(20, 'Episodes to play.', minimum=1, maximum=1_000_000)
    deterministic: bool = setting(
        True, 'Take the most likely action; false: sample from the policy.')
    num_envs: int = setting(
        8, 'Environments that are stepped together.', minimum=1, maximum=4096)
    seed: int = setting(1000, 'Seed of the environments.', minimum=0, maximum=2**31 - 1)
    video: str = setting('', 'Also record one episode to this .mp4 file.')

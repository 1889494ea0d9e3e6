"""Settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['EvaluateConfig']


@dataclass(frozen=True)
class EvaluateConfig:
    """Settings of an evaluation."""

    checkpoint: str = setting('', 'File of the policy: runs/<name>/checkpoint.pt.')
    env_id: str = setting('', 'Refuse a policy that learned in another environment; empty: any.')
    algorithm: str = setting('', 'Refuse a policy of another algorithm; empty: any.')
    episodes: int = setting(20, 'Episodes to play.', minimum=1, maximum=1_000_000)
    deterministic: bool = setting(
        True, 'Take the most likely action; false: draw from the policy.')
    num_envs: int = setting(
        8, 'Environments played at the same time.', minimum=1, maximum=4096)
    seed: int = setting(1000, 'Seed of the environments.', minimum=0, maximum=2**31 - 1)
    video: str = setting('', 'Also record one episode to this .mp4 file.')

"""Settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['EvaluateConfig']


@dataclass(frozen=True)
class EvaluateConfig:
    """Settings of an evaluation."""

    checkpoint: str = setting(
        '', 'Checkpoint, or folder of a run: its best.pt, else checkpoint.pt.')
    env_id: str = setting('', 'Refuse policies of other environments; empty: accept any.')
    algorithm: str = setting('', 'Refuse policies of other algorithms; empty: accept any.')
    episodes: int = setting(20, 'Episodes to play.', minimum=1, maximum=1_000_000)
    deterministic: bool = setting(True, 'Take the most likely action; false: sample.')
    num_envs: int = setting(8, 'Environments that are stepped together.', minimum=1, maximum=4096)
    seed: int = setting(1000, 'Seed of the environments.', minimum=0, maximum=2**31 - 1)
    video: str = setting('', 'Also record one episode to this .mp4 file.')

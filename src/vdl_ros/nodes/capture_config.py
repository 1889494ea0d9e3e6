"""What a user can say about a capture of frames for the pose estimator."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting
from vdl_ros.pose.data.domain_randomization import DOMAINS, SPLITS

__all__ = ['CaptureConfig']


@dataclasses.dataclass(frozen=True)
class CaptureConfig:
    """The node ``capture``."""

    output: str = setting(
        '', 'Folder of the bag. One that exists is gone on with, if it was begun alike.')
    frames: int = setting(20_000, 'Frames to capture.', minimum=1, maximum=100_000_000)
    domain: str = setting(
        'random', 'What is randomised besides the poses of arm and camera.', choices=DOMAINS)
    seed: int = setting(
        0, 'Of the data set; the same seed gives the same frames.', minimum=0, maximum=2**31 - 1)
    split: str = setting(
        'train', 'Part of the seed, so that no split holds a frame of another.',
        choices=tuple(SPLITS))
    labels: bool = setting(
        True, 'Ask for frames of the simulated arm. Without: write pictures as they come, whose '
        'truth nobody knows.')
    compression: str = setting(
        'none', 'Compression of the bag\'s chunks.', choices=('none', 'lz4', 'zstd'))

"""Settings of the node ``capture``."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting
from vdl_ros.pose.data.domain_randomization import DOMAINS, SPLITS

__all__ = ['CaptureConfig']


@dataclasses.dataclass(frozen=True)
class CaptureConfig:
    """The node ``capture``."""

    output: str = setting('', 'Folder of the bag; a capture with the same settings is continued.')
    frames: int = setting(20_000, 'Frames to capture.', minimum=1, maximum=100_000_000)
    domain: str = setting(
        'random', 'What is randomised besides the poses of arm and camera.', choices=DOMAINS)
    seed: int = setting(0, 'The same seed gives the same frames.', minimum=0, maximum=2**31 - 1)
    split: str = setting(
        'train', 'Part of the data set; no part has a frame of another.', choices=tuple(SPLITS))
    labels: bool = setting(
        True, 'Frames of the simulated arm with labels; false: images of the camera without.')
    compression: str = setting(
        'none', "Compression of the bag's chunks.", choices=('none', 'lz4', 'zstd'))

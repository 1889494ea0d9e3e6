"""Settings of the node ``player``."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting

__all__ = ['PlayConfig']


@dataclasses.dataclass(frozen=True)
class PlayConfig:
    """The node ``player``."""

    bag: str = setting('', 'Folder of the bag, or its .mcap file.')
    play_topics: str = setting(
        '', 'Topics to play: patterns as of a shell, separated by commas; empty: all but those '
        'that command an arm.')
    play_rate: float = setting(
        1.0, 'How many times as fast as it was recorded.', minimum=0.01, maximum=100.0)
    play_delay: float = setting(
        1.0, 'Time for listeners to find the topics before the first message.', minimum=0.0,
        maximum=60.0, unit='s')
    loop: bool = setting(False, 'Begin again at the end.')
    publish_clock: bool = setting(False, 'Publish the time of the recording on /clock.')

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
        '', 'Topics to play: shell patterns, separated by commas; empty: all but those that '
        'command an arm.')
    play_rate: float = setting(
        1.0, 'Playback rate, as a multiple of the recorded one.', minimum=0.01, maximum=100.0)
    play_delay: float = setting(
        1.0, 'Time before the first message, for subscribers to discover the topics.', minimum=0.0,
        maximum=60.0, unit='s')
    relearn: bool = setting(
        False, 'Play only trajectories, all of them, to a learner with relearn: as fast as it '
        'learns, in their order.')
    loop: bool = setting(False, 'Start again at the end.')
    publish_clock: bool = setting(False, 'Publish the time of the recording on /clock.')

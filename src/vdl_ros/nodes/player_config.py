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
        '', 'Shell patterns, separated by commas; empty: all but those that command an arm.')
    play_rate: float = setting(1.0, 'Multiple of the recorded speed.', minimum=0.01, maximum=100.0)
    play_delay: float = setting(
        1.0, 'Time before the first message, for discovery.', minimum=0.0, maximum=60.0, unit='s')
    relearn: bool = setting(
        False, 'Play all trajectories, and only them, to a learner with relearn.')
    loop: bool = setting(False, 'Start again at the end.')
    publish_clock: bool = setting(False, 'Publish the recorded time on /clock.')

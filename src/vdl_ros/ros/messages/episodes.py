"""Conversion of finished episodes to messages."""

from __future__ import annotations

from rclpy.time import Time
from std_msgs.msg import Header

from vdl_ros.msg import Episode
from vdl_ros.rl.data.episode_returns import FinishedEpisode

__all__ = ['to_episode']


def to_episode(
    episode: FinishedEpisode, *, stamp: Time, actor_id: str, policy_version: int,
) -> Episode:
    """Return the message of an episode that ended at ``stamp``."""
    return Episode(
        header=Header(stamp=stamp.to_msg()), actor_id=actor_id, environment=episode.environment,
        episode_return=episode.episode_return, length=episode.length,
        terminated=episode.terminated, truncated=episode.truncated,
        success=-1 if episode.success is None else int(episode.success),
        policy_version=policy_version)

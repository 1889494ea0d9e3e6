"""Conversion of finished episodes to messages and back."""

from __future__ import annotations

import math

from rclpy.time import Time
from std_msgs.msg import Header

from vdl_ros.msg import Episode
from vdl_ros.rl.data.episode_returns import FinishedEpisode

__all__ = ['from_episode', 'to_episode']


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


def from_episode(message: Episode) -> FinishedEpisode:
    """
    Return the episode in a message.

    Raises:
        ValueError: the return is not finite, or the length is 0.
    """
    if not math.isfinite(message.episode_return) or not message.length:
        raise ValueError(f'episode: return {message.episode_return}, length {message.length} is '
                         'not allowed: finite, 1 or more')
    return FinishedEpisode(
        message.environment, message.episode_return, message.length, message.terminated,
        message.truncated, None if message.success < 0 else message.success > 0)

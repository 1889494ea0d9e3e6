"""Schedule of epsilon or temperature for actors that act by action values."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from vdl_ros.rl.algorithm_config import AlgorithmConfig, DqnConfig

__all__ = ['exploration_schedule']


def exploration_schedule(
    algorithm_config: AlgorithmConfig, actor_id: str, frozen: bool = False,
) -> Callable[[int], float]:
    """
    Return a function from the learner's agent steps to an actor's epsilon or temperature.

    Actors differ as in Ape-X (Horgan et al. 2018, arXiv:1803.00933): with u from 0 to 1 by the
    actor's name and k = 1 + u * ``exploration_spread``, an actor has epsilon to the power k, or
    the temperature divided by k. For other algorithms the function returns 0.

    Args:
        algorithm_config: the algorithm's settings.
        actor_id: the actor's name.
        frozen: whether the policy does not learn; it explores as little as at the end.
    """
    config = algorithm_config
    if not isinstance(config, DqnConfig):
        return lambda agent_steps: 0.0
    spread = 1.0 + config.exploration_spread * zlib.crc32(actor_id.encode()) / 2**32

    def explore(agent_steps: int) -> float:
        start, end = config.exploration_start, config.exploration_end
        share = 1.0 if frozen else min(agent_steps / config.exploration_steps, 1.0)
        value = start + share * (end - start)
        return value ** spread if config.exploration == 'epsilon' else value / spread

    return explore

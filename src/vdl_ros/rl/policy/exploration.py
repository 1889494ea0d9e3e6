"""How much an actor explores that acts by the values of actions: less and less, and as its own."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from vdl_ros.rl.algorithm_config import AlgorithmConfig, DqnConfig

__all__ = ['exploration_schedule']


def exploration_schedule(own: AlgorithmConfig, actor_id: str) -> Callable[[int], float]:
    """
    Return a function from the learner's agent steps to an actor's epsilon or temperature.

    Actors are spread as in Ape-X (Horgan et al. 2018, arXiv:1803.00933): an actor has the power
    1 + u * ``exploration_spread`` of epsilon, with u from 0 to 1 by its name; of the temperature
    that part. Of policies that are not made of values it is 0 and unused.

    Args:
        own: the algorithm's settings.
        actor_id: the actor's name.
    """
    if not isinstance(own, DqnConfig):
        return lambda agent_steps: 0.0
    spread = 1.0 + own.exploration_spread * zlib.crc32(actor_id.encode()) / 2**32

    def explore(agent_steps: int) -> float:
        passed = min(agent_steps / own.exploration_steps, 1.0)
        value = own.exploration_start + passed * (own.exploration_end - own.exploration_start)
        return value ** spread if own.exploration == 'epsilon' else value / spread

    return explore

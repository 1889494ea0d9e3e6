"""What a learner logs of the actors that are connected, or are missing."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from rclpy.impl.rcutils_logger import RcutilsLogger

from vdl_ros.common.quoting import quoted

__all__ = ['PATIENCE_S', 'ConnectedActors']

#: Without an actor for so long, s, the likely reason is logged.
PATIENCE_S = 20.0


class ConnectedActors:
    """Logs their number when it changes, and once if there is none."""

    def __init__(
        self, logger: RcutilsLogger, needed: int, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Begin with none.

        Args:
            logger: of the learner's node.
            needed: number of actors for which each update waits; 0: updates wait for none.
            clock: time, s.
        """
        self._logger, self._needed, self._clock = logger, needed, clock
        self._count = 0
        self._patience = clock() + PATIENCE_S

    def report(self, count: int) -> None:
        """Log what is new of ``count`` actors."""
        if count != self._count:
            self._count, self._patience = count, math.inf
            text = f'{count} {"actor is" if count == 1 else "actors are"} connected'
            if count < self._needed:
                text += (f'; each update of a synchronous training waits for {self._needed}, the '
                         'num_actors of this learner')
            self._logger.info(text)
        if self._clock() > self._patience:
            self._patience = math.inf
            scope = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') or 'SUBNET'
            advice = '' if scope == 'SUBNET' else 'discovery range SUBNET, there and here, and '
            self._logger.warning(
                f'no actor is connected; discovery range {quoted(scope)}: actors on other hosts '
                f'need {advice}a way to this one: ros2 run vdl_ros doctor --peer HOST')

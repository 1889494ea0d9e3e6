"""What a worker prints: agent steps, and the mean return of the last 100 episodes, at each update.

Imported by the workers, which run in environments without this package.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from collections.abc import Iterable

EPISODES = 100
returns: deque[float] = deque(maxlen=EPISODES)


def report(agent_steps: int, last_returns: Iterable[float] = ()) -> None:
    """Print how many agent steps have been collected, and what episodes returned.

    Args:
        last_returns: of the last 100 episodes; without them ``returns`` of this module. The mean
            of fewer episodes is not reported.
    """
    found = list(last_returns) or list(returns)
    mean = statistics.fmean(found) if len(found) == EPISODES else None
    print(json.dumps({'wall_s': time.monotonic(), 'agent_steps': int(agent_steps),
                      'mean_return': mean}), flush=True)

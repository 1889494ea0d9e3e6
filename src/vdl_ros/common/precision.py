"""Which precision this processor computes networks in fastest: found by trying, not assumed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

__all__ = ['faster_in_bfloat16']

_ROUNDS = 5


def faster_in_bfloat16(
    work: Callable[[], object], clock: Callable[[], float] = time.perf_counter,
) -> bool:
    """
    Return whether ``work`` takes less time with autocast to bfloat16 than without.

    Processors without instructions for bfloat16 are many times slower with it. Both ways are
    tried in turn and the fastest of each counts: others may be using the machine as well.

    Args:
        work: computes something typical; a few milliseconds are enough.
        clock: wall time, s.
    """
    fastest = {False: math.inf, True: math.inf}
    for _ in range(_ROUNDS):
        for bfloat16 in fastest:
            with torch.autocast('cpu', torch.bfloat16, enabled=bfloat16):
                began = clock()
                work()
                fastest[bfloat16] = min(fastest[bfloat16], clock() - began)
    return fastest[True] < fastest[False]

"""Measure whether networks run faster in bfloat16 than in float32 on this processor."""

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
    Return whether ``work`` is faster with autocast to bfloat16 than without.

    Processors without bfloat16 instructions are many times slower with it. Both are run in turn
    and the fastest run of each is compared, because other programs may use the machine.

    Args:
        work: a typical computation; a few milliseconds are enough.
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

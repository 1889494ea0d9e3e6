"""How this process keeps memory: large messages should not be mapped anew each time."""

from __future__ import annotations

import ctypes

__all__ = ['keep_large_blocks']

# Of <malloc.h>, glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The largest that glibc takes; and what of freed memory is kept at hand.
_LARGEST_KEPT, _MOST_KEPT = 32 << 20, 256 << 20


def keep_large_blocks() -> None:
    """
    Let malloc keep freed blocks of megabytes instead of giving them back to the kernel.

    Each large message passes through several blocks of its size. Mapped anew, every page of them
    is a fault and is zeroed first; that takes more time than the copies. Both thresholds have to
    be set, since either one switches off glibc's own guess. Elsewhere than glibc, nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)

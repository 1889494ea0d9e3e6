"""Settings of malloc: keep freed blocks for the next large message."""

from __future__ import annotations

import ctypes

__all__ = ['keep_large_blocks']

# From <malloc.h> of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Bytes: the largest threshold that glibc accepts, and the freed memory to keep.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = 32 << 20, 256 << 20


def keep_large_blocks() -> None:
    """
    Make malloc keep freed blocks of megabytes instead of returning them to the kernel.

    Each large message is copied through several blocks of its size. If they are mapped anew, each
    page costs a fault and is zeroed, which takes longer than the copies. Both thresholds are set,
    because setting one disables glibc's dynamic choice of both. Without glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), 'mallopt', None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD)

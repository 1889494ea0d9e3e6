"""How a process comes by OpenGL: without a display, and so that it can train as well."""

from __future__ import annotations

import contextlib
import os

__all__ = ['draw_without_display', 'load_triton_first']


def draw_without_display() -> None:
    """
    Have MuJoCo draw by EGL, if ``MUJOCO_GL`` does not name another way.

    MuJoCo reads it when it is imported, Gymnasium's environments when they draw; without it they
    want a window.
    """
    os.environ.setdefault('MUJOCO_GL', 'egl')


def load_triton_first() -> None:
    """
    Load Triton, where it is installed; to be called before OpenGL is opened.

    Mesa draws in software, and on some graphics cards, by LLVM, whose names it shows to every
    library that is loaded later. Triton, which comes with PyTorch's CUDA build and is imported by
    the first optimiser, has another LLVM in it: loaded later it takes Mesa's functions for its
    own, and the process dies of a segmentation fault. In this order each keeps its own.
    """
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401

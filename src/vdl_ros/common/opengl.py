"""How a process draws by OpenGL: without a display, and so that it can train as well."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys

from vdl_ros.common import egl_probe

__all__ = ['OpenGLError', 'check_drawing', 'draw_without_display']

REMEDY = 'apt install libegl1 libgl1 libgl1-mesa-dri'
LIBRARIES = ('libEGL.so.1', 'libGL.so.1')


class OpenGLError(OSError):
    """Nothing can be drawn on this machine; the message is one line: why, and what helps."""


def draw_without_display() -> None:
    """
    Have MuJoCo draw by EGL, if ``MUJOCO_GL`` does not name another way.

    MuJoCo reads it when it is imported, Gymnasium's environments when they draw; without it they
    want a window. Where the libraries of OpenGL are missing MuJoCo is imported without them, as
    simulations that draw nothing need none.

    Triton, where it is installed, is loaded before OpenGL. Mesa draws in software, and on some
    graphics cards, by LLVM, whose names it shows to every library that is loaded later; with
    Mesa 25 the import of MuJoCo is enough. Triton, which comes with PyTorch's CUDA build and is
    imported by the first optimiser, has another LLVM in it: loaded later it takes Mesa's functions
    for its own, and the process dies of a segmentation fault. In this order each keeps its own.
    """
    if 'MUJOCO_GL' not in os.environ:
        os.environ['MUJOCO_GL'] = 'disable' if _missing_library() else 'egl'
    if os.environ['MUJOCO_GL'] != 'disable':
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401


def check_drawing() -> str:
    """
    Return the version of EGL with which a display could be made.

    Raises:
        OpenGLError: none could be made.
    """
    way = os.environ.get('MUJOCO_GL', 'egl')
    if way not in ('egl', 'disable'):
        return f'MUJOCO_GL={way}, not tried'
    try:
        # Drivers crash more often than they fail: the display is made in a process of its own.
        probe = subprocess.run([sys.executable, egl_probe.__file__], capture_output=True,
                               text=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        raise OpenGLError('OpenGL: no answer of the graphics driver in 15 s') from None
    if probe.returncode:
        reason = (probe.stderr.splitlines() or [f'ended by signal {-probe.returncode}'])[-1]
        raise OpenGLError(f'OpenGL: {reason.strip()}; {REMEDY}')
    return probe.stdout.strip()


def _missing_library() -> str:
    """Return why a library of OpenGL cannot be loaded; '' if all can."""
    try:
        for name in LIBRARIES:
            ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return ''

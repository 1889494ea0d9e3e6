"""Rendering by OpenGL without a display, in processes that also train."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys

from vdl_ros.common import egl_probe

REMEDY = 'apt install libegl1 libgl1 libgl1-mesa-dri'
LIBRARIES = ('libEGL.so.1', 'libGL.so.1')
# Longest time of the probe, s: its imports take long on a busy machine.
_PROBE_S = 60.0


class OpenGLError(OSError):
    """Rendering is impossible; the message is one line with the reason and the remedy."""


def draw_without_display() -> None:
    """Set ``MUJOCO_GL`` to ``egl`` unless it is set; call before MuJoCo is imported.

    MuJoCo reads the variable on import, Gymnasium's environments when they render; without it
    both open a window. Where the OpenGL libraries are missing it is set to ``disable``, because
    simulations without images do not need them.

    Triton, if installed, is imported before OpenGL. Mesa renders in software, and on some
    graphics cards, with LLVM and exports LLVM's symbols to libraries that are loaded later; with
    Mesa 25 importing MuJoCo is enough. Triton comes with PyTorch's CUDA build, is imported by the
    first optimiser and contains another LLVM: loaded after Mesa, it resolves to Mesa's symbols and
    the process crashes with a segmentation fault. In this order each uses its own.
    """
    if 'MUJOCO_GL' not in os.environ:
        try:
            for name in LIBRARIES:
                ctypes.CDLL(name)
            os.environ['MUJOCO_GL'] = 'egl'
        except OSError:
            os.environ['MUJOCO_GL'] = 'disable'
    if os.environ['MUJOCO_GL'] != 'disable':
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401


def check_drawing() -> str:
    """Create an EGL display and return its version; OpenGLError: none can be created."""
    backend = os.environ.get('MUJOCO_GL', 'egl')
    if backend not in ('egl', 'disable'):
        return f'MUJOCO_GL={backend}, not tried'
    try:
        # In a separate process, because broken drivers crash more often than they return an error.
        probe = subprocess.run([sys.executable, egl_probe.__file__], capture_output=True,
                               text=True, timeout=_PROBE_S, check=False)
    except subprocess.TimeoutExpired:
        raise OpenGLError(
            f'OpenGL: the graphics driver did not respond in {_PROBE_S:g} s') from None
    if probe.returncode:
        reason = (probe.stderr.splitlines() or [f'killed by signal {-probe.returncode}'])[-1]
        raise OpenGLError(f'OpenGL: {reason.strip()}; {REMEDY}')
    return probe.stdout.strip()

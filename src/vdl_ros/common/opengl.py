"""Rendering by OpenGL without a display, in processes that also train."""

import contextlib
import ctypes
import os
import subprocess
import sys

from vdl_ros.common import egl_probe
from vdl_ros.common.command_line import say
from vdl_ros.common.quoting import quoted

REMEDY = 'apt install libegl1 libgl1 libgl1-mesa-dri'
LIBRARIES = ('libEGL.so.1', 'libGL.so.1')
# Longest time of the probe, s: its imports take long on a busy machine.
_PROBE_S = 60.0


# What MuJoCo accepts: no drawing, a window, and drawing into memory.
_OFF = ('disable', 'disabled', 'off', 'false', '0')
_WINDOW = ('', 'enable', 'enabled', 'on', 'true', '1', 'glfw', 'glx')
_OSMESA = ('libOSMesa.so.8', 'libOSMesa.so.6', 'libOSMesa.so')
_refused = ''


class OpenGLError(OSError):
    """Rendering is impossible; the message is one line with the reason and the remedy."""


def refuse_unusable_backend() -> None:
    """Draw nothing, and say so, if ``MUJOCO_GL`` is set to what MuJoCo's import would fail with.

    Most of what imports MuJoCo draws nothing.
    """
    global _refused
    if reason := _unusable():
        _refused = reason
        os.environ['MUJOCO_GL'] = 'disable'
        say(f'{reason}; nothing is drawn', sys.stderr)


def _unusable() -> str:
    value = os.environ.get('MUJOCO_GL', 'egl')
    backend = value.lower().strip()
    if backend == 'osmesa' and not any(map(_loads, _OSMESA)):
        return "MUJOCO_GL: 'osmesa' needs libOSMesa, which is not installed; unset it"
    if backend in ('egl', 'osmesa', *_OFF, *_WINDOW):
        return ''
    return f'MUJOCO_GL: {quoted(value)} is not allowed: egl, osmesa, glfw or disable; unset it'


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


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
    refuse_unusable_backend()
    if 'MUJOCO_GL' not in os.environ:
        os.environ['MUJOCO_GL'] = 'egl' if all(map(_loads, LIBRARIES)) else 'disable'
    if os.environ['MUJOCO_GL'] != 'disable':
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401


def check_drawing() -> str:
    """Create an EGL display and return its version; OpenGLError: nothing can be drawn."""
    if reason := _refused or _unusable():
        raise OpenGLError(f'OpenGL: {reason}')
    backend = os.environ.get('MUJOCO_GL', 'egl').lower().strip()
    if backend == 'osmesa':
        return 'OSMesa'
    if backend in _WINDOW:
        if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
            raise OpenGLError(f'OpenGL: MUJOCO_GL: {backend!r} needs a display; unset it')
        return f'MUJOCO_GL={backend}, in windows of the display'
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

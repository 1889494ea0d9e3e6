"""Print the EGL version if this machine can render without a display; else exit with 1.

``python egl_probe.py`` runs as a separate process, because a broken graphics driver crashes the
process that loads it. ``doctor`` and the set-up run it; it needs only the standard library.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

# From EGL/egl.h and EGL/eglext.h.
EGL_VENDOR = 0x3053
EGL_PLATFORM_SURFACELESS_MESA = 0x31DD


def main() -> str | None:
    """Create a display and print its version; return the error, or None."""
    try:
        egl = ctypes.CDLL('libEGL.so.1')
        # PyOpenGL, which MuJoCo and Gymnasium use, loads it besides EGL.
        ctypes.CDLL('libGL.so.1')
    except OSError as error:
        return str(error)
    egl.eglGetDisplay.restype = egl.eglGetProcAddress.restype = ctypes.c_void_p
    egl.eglGetDisplay.argtypes = [ctypes.c_void_p]
    egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]
    egl.eglInitialize.argtypes = [ctypes.c_void_p] * 3
    egl.eglQueryString.argtypes = [ctypes.c_void_p, ctypes.c_int]
    egl.eglQueryString.restype = ctypes.c_char_p
    displays: list[Callable[[], Any]] = []
    if address := egl.eglGetProcAddress(b'eglGetPlatformDisplayEXT'):
        function: Any = ctypes.CFUNCTYPE(
            ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
        get_platform_display = function(address)
        displays.append(lambda: get_platform_display(EGL_PLATFORM_SURFACELESS_MESA, None, None))
    displays.append(lambda: egl.eglGetDisplay(None))
    for make in displays:
        display = make()
        major, minor = ctypes.c_int(), ctypes.c_int()
        if display and egl.eglInitialize(display, ctypes.byref(major), ctypes.byref(minor)):
            vendor = (egl.eglQueryString(display, EGL_VENDOR) or b'').decode()
            print(f'EGL {major.value}.{minor.value} ({vendor})')
            return None
    return 'no EGL display can be created: no graphics driver'


if __name__ == '__main__':
    sys.exit(main())

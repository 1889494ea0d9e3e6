"""
What the set-up needs of the operating system, and how it is installed.

Each need is looked for by what is used of it, not by the name of a package: compilers and
libraries may come from elsewhere than apt. What is missing is installed by apt-get where that
needs no password; else the set-up ends with the command to type, or goes on without it where
only a part of the project needs it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from steps import SetupError, run, say

EGL_PROBE = Path(__file__).resolve().parent.parent / 'src' / 'vdl_ros' / 'common' / 'egl_probe.py'


@dataclass(frozen=True)
class Need:
    """Something that must be on the machine: what to call it, how to find it, what brings it."""

    name: str
    is_there: Callable[[], bool]
    packages: str  # of Debian, separated by spaces


def has_program(*names: str) -> bool:
    """Whether one of these programs is on the PATH, or where administrators' programs are."""
    path = f'{os.environ.get("PATH", os.defpath)}:/usr/sbin:/sbin'
    return any(shutil.which(name, path=path) for name in names)


def has_python_headers() -> bool:
    """Whether extensions of this Python can be compiled."""
    return (Path(sysconfig.get_paths()['include']) / 'Python.h').is_file()


def has_ensurepip() -> bool:
    """Whether this Python can make a virtual environment with pip."""
    importlib.invalidate_caches()
    return importlib.util.find_spec('ensurepip') is not None


def has_opengl() -> bool:
    """Whether pictures can be drawn without a display."""
    return not subprocess.run([sys.executable, EGL_PROBE], capture_output=True,
                              check=False).returncode


BUILDING = (
    Need('a C compiler', lambda: has_program('cc', 'gcc', 'clang'), 'build-essential'),
    Need('a C++ compiler', lambda: has_program('c++', 'g++'), 'build-essential'),
    Need('make', lambda: has_program('make'), 'build-essential'),
    Need('Python.h', has_python_headers, 'python3-dev'),
    Need('ensurepip', has_ensurepip, 'python3-venv'),
)
DRAWING = (
    Need('OpenGL without a display', has_opengl, 'libegl1 libgl1 libgl1-mesa-dri'),
)
TESTING = (
    Need('ip', lambda: has_program('ip'), 'iproute2'),
    Need('Chromium', lambda: has_program('chromium', 'chromium-browser', 'google-chrome'),
         'chromium'),
    Need('chromedriver', lambda: has_program('chromedriver'), 'chromium-driver'),
)

ALL = BUILDING + DRAWING + TESTING


def install_missing(needs: Sequence[Need], *, log: Path) -> list[Need]:
    """
    Install what is missing, as root or by sudo without a password; return what still is.

    Args:
        needs: what to look for.
        log: file for the output of apt-get.
    """
    missing = [need for need in needs if not need.is_there()]
    prefix = _root_command()
    if not missing or prefix is None or not shutil.which('apt-get'):
        return missing
    packages = _packages(missing)
    say(f'missing: {_names(missing)}; installing {" ".join(packages)}')
    env = dict(os.environ, DEBIAN_FRONTEND='noninteractive')
    try:
        run('package lists', [*prefix, 'apt-get', 'update', '-q'], log, env=env)
        run('system packages', [
            *prefix, 'apt-get', 'install', '-qy', '--no-install-recommends', *packages],
            log, env=env)
    except SetupError as error:
        say(str(error))
    return [need for need in missing if not need.is_there()]


def look(log: Path, *, with_tests: bool) -> None:
    """
    Install what the set-up needs, and what the tests or drawing need, where that is possible.

    Args:
        log: file for the output of apt-get.
        with_tests: whether nothing may be missing; else drawing can be done without.

    Raises:
        SetupError: something is missing and cannot be installed from here.
    """
    missing = install_missing(ALL if with_tests else BUILDING + DRAWING, log=log)
    needed = [need for need in missing if with_tests or need in BUILDING]
    if needed:
        raise SetupError(f'missing: {_names(missing)}; run: {command(missing)}')
    if missing:
        say(f'missing: {_names(missing)}; training works without, but not cameras, pictures and '
            f'videos; for these run: {command(missing)}')


def command(needs: Sequence[Need]) -> str:
    """Return the command that installs these on Debian."""
    sudo = '' if os.geteuid() == 0 else 'sudo '
    return f'{sudo}apt install {" ".join(_packages(needs))}'


def _names(needs: Sequence[Need]) -> str:
    return ', '.join(need.name for need in needs)


def _packages(needs: Sequence[Need]) -> list[str]:
    return list(dict.fromkeys(name for need in needs for name in need.packages.split()))


def _root_command() -> list[str] | None:
    """Return what makes a command root's without a question; None if nothing does."""
    if os.geteuid() == 0:
        return []
    if shutil.which('sudo') and not subprocess.run(
            ['sudo', '-n', 'true'], capture_output=True, check=False).returncode:
        return ['sudo', '-n']
    return None

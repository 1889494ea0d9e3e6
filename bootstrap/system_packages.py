"""Check and install the system packages that the set-up requires.

Each requirement is detected by its use, such as a program on the PATH, because it may not come
from apt. Missing packages are installed by apt-get if that needs no password. Otherwise the
set-up ends with the command to run, or continues if only a part of the project requires them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steps import SetupError, print_progress, run

EGL_PROBE = Path(__file__).resolve().parent.parent / 'src' / 'vdl_ros' / 'common' / 'egl_probe.py'


@dataclass(frozen=True)
class Need:
    """A requirement: its name, a test whether it is there, the packages that provide it."""

    name: str
    is_there: Callable[[], bool]
    packages: str  # Debian packages, separated by spaces


def has_program(*names: str) -> bool:
    path = f'{os.environ.get("PATH", os.defpath)}:/usr/sbin:/sbin'
    return any(shutil.which(name, path=path) for name in names)


def has_ensurepip() -> bool:
    importlib.invalidate_caches()
    return importlib.util.find_spec('ensurepip') is not None


def has_opengl() -> bool:
    return not subprocess.run([sys.executable, EGL_PROBE], capture_output=True,
                              check=False).returncode


BUILDING = (
    Need('a C compiler', lambda: has_program('cc', 'gcc', 'clang'), 'build-essential'),
    Need('a C++ compiler', lambda: has_program('c++', 'g++'), 'build-essential'),
    Need('make', lambda: has_program('make'), 'build-essential'),
    Need('Python.h', lambda: Path(sysconfig.get_path('include'), 'Python.h').is_file(),
         'python3-dev'),
    Need('ensurepip', has_ensurepip, 'python3-venv'),
)
DRAWING = (
    Need('OpenGL without a display', has_opengl, 'libegl1 libgl1 libgl1-mesa-dri'),
)
TESTING = (
    Need('Chromium', lambda: has_program('chromium', 'chromium-browser', 'google-chrome'),
         'chromium'),
    Need('chromedriver', lambda: has_program('chromedriver'), 'chromium-driver'),
)
# Tests of several hosts; only `make test-all` has them.
TESTING_HOSTS = (
    Need('ip', lambda: has_program('ip'), 'iproute2'),
    Need('ssh', lambda: has_program('ssh'), 'openssh-client'),
    Need('sshd', lambda: has_program('sshd'), 'openssh-server'),
)
# What apt-get prints while another process, such as automatic updates, holds one of its locks.
# Its option DPkg::Lock::Timeout waits for one of the three locks only.
LOCKED = 'Could not get lock'
LOCK_TIMEOUT_S = 600.0
LOCK_PERIOD_S = 2.0


def install_missing(needs: Sequence[Need], *, log: Path) -> list[Need]:
    """Install missing packages as root or by sudo without password; return what is still missing.

    Args:
        log: file for the output of apt-get.
    """
    missing = [need for need in needs if not need.is_there()]
    prefix = _root_command()
    if not missing or prefix is None or not shutil.which('apt-get'):
        return missing
    packages = _packages(missing)
    print_progress(f'missing: {_names(missing)}; installing {" ".join(packages)}')
    # In English, because its messages are read.
    env = dict(os.environ, DEBIAN_FRONTEND='noninteractive', LC_ALL='C')
    try:
        _apt_get('package lists', [*prefix, 'apt-get', 'update', '-q'], log, env)
        _apt_get('system packages', [
            *prefix, 'apt-get', 'install', '-qy', '--no-install-recommends', *packages], log, env)
    except SetupError as error:
        print_progress(str(error))
    return [need for need in missing if not need.is_there()]


def _apt_get(title: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
    """Run apt-get; as long as another process holds its locks, wait and try again."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    waiting = False
    while True:
        try:
            return run(title, command, log, env=env)
        except SetupError:
            if LOCKED not in log.read_text(errors='replace') or time.monotonic() > deadline:
                raise
        if not waiting:
            print_progress(f'{title}: another process holds the locks of apt; waiting up to '
                           f'{LOCK_TIMEOUT_S / 60:.0f} min')
        waiting = True
        time.sleep(LOCK_PERIOD_S)


def install(log: Path, *, tests: Sequence[Need] = ()) -> None:
    """Install the system packages for building, rendering and tests.

    Args:
        log: file for the output of apt-get.
        tests: requirements of the tests that are to run. With tests all are required; without,
            rendering is optional.
    """
    missing = install_missing([*BUILDING, *DRAWING, *tests], log=log)
    if any(tests or need in BUILDING for need in missing):
        raise SetupError(f'missing: {_names(missing)}; run: {command(missing)}')
    if missing:
        print_progress(
            f'missing: {_names(missing)}; training works without, but not cameras, images and '
            f'videos; to install: {command(missing)}')


def command(needs: Sequence[Need]) -> str:
    sudo = '' if os.geteuid() == 0 else 'sudo '
    return f'{sudo}apt install {" ".join(_packages(needs))}'


def _names(needs: Sequence[Need]) -> str:
    return ', '.join(need.name for need in needs)


def _packages(needs: Sequence[Need]) -> list[str]:
    return list(dict.fromkeys(name for need in needs for name in need.packages.split()))


def _root_command() -> list[str] | None:
    """Return the prefix that runs a command as root without password; None if impossible."""
    if os.geteuid() == 0:
        return []
    if shutil.which('sudo') and not subprocess.run(
            ['sudo', '-n', 'true'], capture_output=True, check=False).returncode:
        return ['sudo', '-n']
    return None

"""Install Python packages with uv and pip's settings; choose the build of PyTorch."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from steps import SetupError, print_progress, run

# Environment variable: URL of an index with PyTorch's CPU build.
TORCH_INDEX = 'VDL_TORCH_INDEX'
NVIDIA = (Path('/proc/driver/nvidia/version'), Path('/dev/nvidiactl'), Path('/dev/dxg'))
# Measured with torch 2.13.0 for Linux on x86-64.
CUDA_COST = ('2.7 GB to download instead of 0.2, 3.5 GB more on the disk, and 680 MB of memory '
             'instead of 270 for each process that learns or acts')


class PackageIndex:
    """uv in a virtual environment, with the user's pip settings.

    uv does not read pip's configuration, so the indexes, local wheels and certificates configured
    for pip are passed to it.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.constraints: Path | None = None

    def install_uv(self, requirements: Sequence[str]) -> None:
        run('uv', [self._python, '-m', 'pip', 'install', '--disable-pip-version-check',
                   *requirements], self.prefix / 'log' / 'pip-uv.log')

    def install(self, title: str, requirements: Sequence[str | Path], *options: str,
                env: Mapping[str, str] | None = None) -> None:
        """Install requirements with uv, several at a time.

        Args:
            title: of the step, for progress lines and the log file.
            requirements: arguments of ``pip install``.
            options: of ``uv pip install``.
        """
        log = self.prefix / 'log' / f'uv-{title.lower().replace(" ", "-").replace(",", "")}.log'
        run(title, [
            self.prefix / 'bin' / 'uv', 'pip', 'install', '--python', self._python,
            # As pip does. Otherwise every process compiles its imports if
            # PYTHONDONTWRITEBYTECODE is set or the folder belongs to another user.
            '--compile-bytecode',
            *pip_options(self._pip_settings()), *options, *requirements,
            *(['--constraints', self.constraints] if self.constraints else []),
        ], log, env=self._variables() | dict(env or {}))

    def install_torch(self, requirements: Sequence[str]) -> None:
        """Install PyTorch: on a machine without an NVIDIA GPU the CPU build, if it is available.

        The CPU build is searched in this order: the index ``VDL_TORCH_INDEX``; wheels in the
        folders of pip's ``find-links``; PyTorch's index. If it is in none of them, the CUDA build
        is installed, and one line prints the cost.
        """
        if index := os.environ.get(TORCH_INDEX):
            self.install('PyTorch', requirements, '--index', index)
        elif any(path.exists() for path in NVIDIA) or has_cpu_wheel(requirements[0], find_links(
                self._pip_settings())):
            self.install('PyTorch', requirements)
        else:
            try:
                # No retries: on failure the CUDA build follows at once.
                self.install('PyTorch for CPUs', requirements, '--torch-backend', 'cpu',
                             env={'UV_HTTP_RETRIES': '0', 'UV_HTTP_TIMEOUT': '10'})
            except SetupError:
                print_progress(
                    f'no NVIDIA GPU, but only PyTorch\'s CUDA build is available: {CUDA_COST}; '
                    f'to avoid this: {TORCH_INDEX}=URL make setup, with an index of CPU builds')
                self.install('PyTorch', requirements)

    @property
    def _python(self) -> Path:
        return self.prefix / 'bin' / 'python3'

    def _variables(self) -> dict[str, str]:
        env = dict(os.environ, UV_PYTHON_DOWNLOADS='never', UV_NO_CONFIG='1')
        if certificates := self._pip_settings().get('cert'):
            env.setdefault('SSL_CERT_FILE', certificates)
        else:
            env.setdefault('UV_SYSTEM_CERTS', '1')
        return env

    def _pip_settings(self) -> dict[str, str]:
        listed = subprocess.run([self._python, '-m', 'pip', 'config', 'list'], check=True,
                                capture_output=True, text=True).stdout
        return read_pip_settings(listed)


def read_pip_settings(listed: str) -> dict[str, str]:
    """Return the settings of ``pip install`` from the output of ``pip config list``, by option.

    Environment variables override the section ``install``, which overrides ``global``.
    """
    found: dict[str, dict[str, str]] = {'global': {}, 'install': {}, ':env:': {}}
    for line in listed.splitlines():
        name, _, value = line.partition('=')
        section, _, option = name.partition('.')
        if section in found:
            found[section][option.replace('_', '-')] = str(ast.literal_eval(value))
    return found['global'] | found['install'] | found[':env:']


def find_links(settings: Mapping[str, str]) -> list[str]:
    """Return the folders and pages of wheels (``find-links``) in pip's settings."""
    return settings.get('find-links', '').split()


def pip_options(settings: Mapping[str, str]) -> list[str]:
    """Return pip's settings as options of uv, without folders that do not exist."""
    options = ['--index-strategy', 'unsafe-best-match']  # as pip: best version of all indexes
    if index := settings.get('index-url'):
        options += ['--default-index', index]
    for option, places in (('--index', settings.get('extra-index-url', '').split()),
                           ('--find-links', find_links(settings))):
        for place in places:
            if Path(place.removeprefix('file://')).exists() or '://' in place.replace(
                    'file://', ''):
                options += [option, place]
    return options


def has_cpu_wheel(requirement: str, places: Sequence[str]) -> bool:
    """Return whether a folder has a CPU wheel of ``torch==VERSION`` for this Python."""
    version = requirement.partition('==')[2].split(';')[0].strip()
    tags = 'py3', f'cp{sys.version_info[0]}{sys.version_info[1]}'
    return any(list(Path(place.removeprefix('file://')).glob(f'torch-{version}+cpu-{tag}-*.whl'))
               for place in places for tag in tags)

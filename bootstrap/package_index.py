"""Install Python packages by uv from where pip would take them, and choose PyTorch's build."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from steps import SetupError, run, say

# An index that has PyTorch's CPU build; set by the user.
TORCH_INDEX = 'VDL_TORCH_INDEX'
NVIDIA = (Path('/proc/driver/nvidia/version'), Path('/dev/nvidiactl'), Path('/dev/dxg'))
# Measured with torch 2.13.0 for Linux on x86-64.
CUDA_COST = ('2.7 GB to download instead of 0.2, 3.5 GB more on the disk, and 680 MB of memory '
             'instead of 270 for each process that learns or acts')


class PackageIndex:
    """
    uv in a virtual environment, with the settings of the user's pip.

    uv reads none of pip's configuration; mirrors, local wheels and certificates that are set for
    pip are handed to it.
    """

    def __init__(self, prefix: Path) -> None:
        """Take the virtual environment at ``prefix``."""
        self.prefix = prefix

    def install_uv(self, requirements: Sequence[str]) -> None:
        """Install uv itself, by pip."""
        run('uv', [self._python, '-m', 'pip', 'install', '--disable-pip-version-check',
                   *requirements], self.prefix / 'log' / 'pip-uv.log')

    def install(self, title: str, requirements: Sequence[str | Path], *options: str,
                env: Mapping[str, str] | None = None) -> None:
        """
        Install requirements; uv downloads and unpacks several at a time.

        Args:
            title: names the step, its lines and its log.
            requirements: as on pip's command line.
            options: of ``uv pip install``.
            env: further environment variables.

        Raises:
            SetupError: a package cannot be installed.
        """
        log = self.prefix / 'log' / f'uv-{title.lower().replace(" ", "-").replace(",", "")}.log'
        run(title, [
            self.prefix / 'bin' / 'uv', 'pip', 'install', '--python', self._python,
            # As pip does; without it every process would compile what it imports, where
            # PYTHONDONTWRITEBYTECODE is set or the folder is another user's.
            '--compile-bytecode',
            *pip_options(self._pip_settings()), *options, *requirements,
        ], log, env=self._variables() | dict(env or {}))

    def install_torch(self, requirements: Sequence[str]) -> None:
        """
        Install PyTorch: without an NVIDIA GPU the CPU build, where it can be had.

        It is looked for in this order: the index that ``VDL_TORCH_INDEX`` names; wheels in the
        folders of pip's ``find-links``; PyTorch's own index. If there is none, the CUDA build is
        installed, and one line says what that costs.

        Raises:
            SetupError: it cannot be installed, or not from the index that the user named.
        """
        if index := os.environ.get(TORCH_INDEX):
            self.install('PyTorch', requirements, '--index', index)
        elif any(path.exists() for path in NVIDIA) or has_cpu_wheel(requirements[0], find_links(
                self._pip_settings())):
            self.install('PyTorch', requirements)
        else:
            try:
                # Where it cannot be reached the next line should not keep anybody waiting.
                self.install('PyTorch for CPUs', requirements, '--torch-backend', 'cpu',
                             env={'UV_HTTP_RETRIES': '0', 'UV_HTTP_TIMEOUT': '10'})
            except SetupError:
                say(f'no NVIDIA GPU, but only PyTorch\'s CUDA build can be reached: {CUDA_COST}; '
                    f'to avoid that: {TORCH_INDEX}=URL make setup, with an index of CPU builds')
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
    """
    Return what ``pip config list`` says of ``pip install``, by the options' names.

    The environment outranks the section of the command, and that outranks the global one.
    """
    found: dict[str, dict[str, str]] = {'global': {}, 'install': {}, ':env:': {}}
    for line in listed.splitlines():
        name, _, value = line.partition('=')
        section, _, option = name.partition('.')
        if section in found:
            found[section][option.replace('_', '-')] = str(ast.literal_eval(value))
    return found['global'] | found['install'] | found[':env:']


def find_links(settings: Mapping[str, str]) -> list[str]:
    """Return the folders and pages of wheels in pip's settings."""
    return settings.get('find-links', '').split()


def pip_options(settings: Mapping[str, str]) -> list[str]:
    """Return uv's options for pip's settings, without folders that do not exist."""
    options = ['--index-strategy', 'unsafe-best-match']  # as pip: the best of all indexes
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
    """Whether a folder holds a CPU wheel of ``torch==VERSION`` for the Python that runs this."""
    version = requirement.partition('==')[2].split(';')[0].strip()
    tags = 'py3', f'cp{sys.version_info[0]}{sys.version_info[1]}'
    return any(list(Path(place.removeprefix('file://')).glob(f'torch-{version}+cpu-{tag}-*.whl'))
               for place in places for tag in tags)

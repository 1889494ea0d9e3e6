"""Fixture that runs the `ros2` of the stand-in on launch files that a test writes."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

STANDIN = Path(__file__).parents[2] / 'bootstrap' / 'ros2_standin'
PACKAGE = 'standin_test_package'
HEADER = """\
import sys
from launch import *
from launch.actions import *
from launch.event_handlers import *
from launch.launch_description_sources import *
from launch.substitutions import *
from launch_ros.actions import *
from launch_ros.parameter_descriptions import *
from launch_ros.substitutions import *

Config = LaunchConfiguration


def sh(script, **options):
    return ExecuteProcess(cmd=['sh', '-c', script], **options)


def py(script, **options):
    return ExecuteProcess(cmd=[sys.executable, '-u', '-c', script], **options)


def generate_launch_description():
"""


class Command:
    """A `ros2` command and its output."""

    def __init__(self, launched):
        self._launched = launched

    @property
    def output(self) -> str:
        return self._launched.output.removesuffix('\n')

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def messages(self) -> list[str]:
        """The messages of the LogInfo actions."""
        mark = '[INFO] [launch.user]: '
        return [line.removeprefix(mark) for line in self.lines if line.startswith(mark)]

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the output has a text, so many times."""
        self._launched.wait_for(lambda: self.output.count(text) >= times, text)

    def pids(self, *names: str) -> list[int]:
        """Wait until processes are started; return the ids of all."""
        mark = ']: process started with pid ['
        for name in names:
            self.wait_for(f'[{name}{mark}')
        return [int(line.rpartition('[')[2].rstrip(']')) for line in self.lines if mark in line]

    def send(self, signum: int) -> None:
        """Send a signal to the command alone."""
        self._launched.process.send_signal(signum)

    def finish(self) -> int:
        """Wait for the end; return the exit status."""
        return self._launched.wait()


class Workspace:
    """A folder with launch files, an installed package, and the commands that use them."""

    standin = STANDIN

    def __init__(self, directory: Path, launch):
        self.directory = directory
        self._launch = launch
        self.prefix = directory / 'prefix'
        self.share = self.prefix / 'share' / PACKAGE
        self.libexec = self.prefix / 'lib' / PACKAGE
        index = self.prefix / 'share' / 'ament_index' / 'resource_index' / 'packages'
        for path in (self.share / 'launch', self.libexec, index):
            path.mkdir(parents=True)
        (index / PACKAGE).touch()
        self.environment = {
            **os.environ,
            'AMENT_PREFIX_PATH': f"{self.prefix}:{os.environ.get('AMENT_PREFIX_PATH', '')}",
            'PYTHONPATH': f"{STANDIN}:{os.environ.get('PYTHONPATH', '')}",
            'PYTHONDONTWRITEBYTECODE': '1',
            'ROS_LOG_DIR': str(directory / 'log'),
        }

    def launch_file(self, body: str, name: str = 'test.launch.py', installed: bool = False) -> str:
        """Write a launch file from the body of its function, or from `[...]`, its entities."""
        body = textwrap.dedent(body).strip()
        if body.startswith('['):
            body = f'return LaunchDescription({body})'
        path = (self.share / 'launch' if installed else self.directory) / name
        path.write_text(f'{HEADER}{textwrap.indent(body, "    ")}\n')
        return str(path)

    def executable(self, name: str, script: str) -> None:
        """Write an executable of the package, a Python script."""
        path = self.libexec / name
        path.write_text(f'#!{sys.executable}\n{textwrap.dedent(script)}')
        path.chmod(0o755)

    def start(self, *arguments: str) -> Command:
        """Start `ros2`."""
        command = [sys.executable, '-m', 'ros2_command', *arguments]
        return Command(self._launch(*command, env=self.environment))

    def run(self, *arguments: str) -> Command:
        """Run `ros2` to its end."""
        command = self.start(*arguments)
        command.finish()
        return command

    def launch(self, body: str, *arguments: str) -> Command:
        """Run a launch file to its end."""
        return self.run('launch', self.launch_file(body), *arguments)

    def start_launch(self, body: str) -> Command:
        """Start a launch file."""
        return self.start('launch', self.launch_file(body))


@pytest.fixture
def workspace(tmp_path, launch):
    """Return a workspace; what its commands started is ended after the test."""
    return Workspace(tmp_path, launch)

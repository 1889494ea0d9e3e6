"""Runs the stand-in's `ros2` in processes of its own, on launch files made for a test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

STANDIN = Path(__file__).parents[2] / 'bootstrap' / 'ros2_standin'
PACKAGE = 'standin_test_package'
TIMEOUT = 120.0

HEADER = """\
import sys
from launch import *
from launch.actions import *
from launch.conditions import *
from launch.event_handlers import *
from launch.events import matches_action
from launch.events.process import *
from launch.launch_description_sources import *
from launch.substitutions import *
from launch_ros.actions import *
from launch_ros.parameter_descriptions import *
from launch_ros.substitutions import (
    ExecutableInPackage, FindPackagePrefix, FindPackageShare, Parameter as SetForAll)
import signal

Config = LaunchConfiguration


def sh(script, **options):
    return ExecuteProcess(cmd=['sh', '-c', script], **options)


def py(script, **options):
    return ExecuteProcess(cmd=[sys.executable, '-u', '-c', script], **options)


"""


def wait_until(condition: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
    """Wait for a condition, and fail if it does not come about."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f'{what} did not happen in {timeout} seconds'
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Say whether a process is there and is not a zombie."""
    try:
        status = Path(f'/proc/{pid}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(')')[2].split()[0] != 'Z'


class Ros2:
    """A running `ros2` command whose output, with stderr, is collected line by line."""

    def __init__(self, arguments: list[str], environment: dict[str, str], directory: Path) -> None:
        """Start the command in a process group of its own."""
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, '-m', 'ros2_command', *arguments],
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line.rstrip('\n'))

    @property
    def output(self) -> str:
        """What was written so far."""
        return '\n'.join(self.lines)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until a text was written, once or so many times."""
        wait_until(lambda: self.output.count(text) >= times, f'{text!r} in:\n{self.output}')

    def pids(self, *names: str) -> list[int]:
        """Wait for processes to be started and give their ids."""
        for name in names:
            self.wait_for(f'[{name}]: process started with pid [')
        return [
            int(line.rpartition('[')[2].rstrip(']'))
            for line in self.lines
            if 'process started with pid [' in line
        ]

    def send(self, signum: int) -> None:
        """Send a signal to the command and to nothing else."""
        self.process.send_signal(signum)

    def finish(self) -> int:
        """Wait for the end and give the exit status."""
        status = self.process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        return status

    def kill(self) -> None:
        """End whatever is left of the command and its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(TIMEOUT)


class Workspace:
    """A directory with launch files, an installed package, and the commands run with them."""

    standin = STANDIN
    is_running = staticmethod(is_running)
    wait_until = staticmethod(wait_until)

    def __init__(self, directory: Path) -> None:
        """Make the package, with nothing in it; the ROS domain is the one of the test."""
        self.directory = directory
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
        self._commands: list[Ros2] = []

    def launch_file(
        self, body: str, name: str = 'test.launch.py', *, installed: bool = False
    ) -> str:
        """Write a launch file: the body of its function, or `[...]`, the entities to return."""
        body = textwrap.dedent(body).strip()
        if body.startswith('['):
            body = f'return LaunchDescription({body})'
        path = (self.share / 'launch' if installed else self.directory) / name
        function = 'def generate_launch_description():\n'
        path.write_text(HEADER + function + textwrap.indent(body, '    ') + '\n')
        return str(path)

    def executable(self, name: str, script: str) -> None:
        """Write an executable of the package, in Python unless it says otherwise."""
        script = textwrap.dedent(script).lstrip()
        if not script.startswith('#!'):
            script = f'#!{sys.executable}\n{script}'
        path = self.libexec / name
        path.write_text(script)
        path.chmod(0o755)

    def start(self, *arguments: str) -> Ros2:
        """Start `ros2`."""
        command = Ros2(list(arguments), self.environment, self.directory)
        self._commands.append(command)
        return command

    def run(self, *arguments: str) -> Ros2:
        """Run `ros2` to its end."""
        command = self.start(*arguments)
        command.finish()
        return command

    def launch(self, body: str, *arguments: str) -> Ros2:
        """Run a launch file to its end."""
        return self.run('launch', self.launch_file(body), *arguments)

    def start_launch(self, body: str, *arguments: str) -> Ros2:
        """Start a launch file."""
        return self.start('launch', self.launch_file(body), *arguments)

    def user_messages(self, command: Ros2) -> list[str]:
        """Give what the LogInfo actions of a launch wrote."""
        mark = '[INFO] [launch.user]: '
        return [line.removeprefix(mark) for line in command.lines if line.startswith(mark)]

    def clean_up(self) -> None:
        """End the commands that are still running."""
        for command in self._commands:
            command.kill()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Give a workspace whose commands are ended after the test."""
    made = Workspace(tmp_path)
    yield made
    made.clean_up()

"""
Fixture that runs the `ros2` of the stand-in in this process, on launch files that a test writes.

The processes of a launch that are called `program` only pretend to run; see Program.
"""

import asyncio
import atexit
import contextlib
import importlib
import io
import itertools
import logging
import os
import signal
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

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


def program(*words, **options):
    return ExecuteProcess(cmd=['program', *words], **options)


def node(**options):
    return Node(package='standin_test_package', executable='program', **options)


def generate_launch_description():
"""


class Program(asyncio.SubprocessTransport):
    """A process that only pretends to run: it does what the words of its command line say.

    `1 TEXT` and `2 TEXT` write a line to that stream, `stay` keeps it from ending, `ignore NAME`
    lets it ignore that signal, and `exit N` gives it an exit status.
    """

    def __init__(self, protocol, pid, command):
        super().__init__()
        self.command, self.signals = command, []
        pairs = list(itertools.pairwise(command))
        self.files = [yaml.safe_load(Path(after).read_text())
                      for word, after in pairs if word == '--params-file']
        self.rules = [after for word, after in pairs if word == '-r']
        self._protocol, self._pid, self._status = protocol, pid, None

    def get_pid(self):
        return self._pid

    def get_returncode(self):
        return self._status

    def close(self):
        pass

    def run(self):
        self._protocol.connection_made(self)
        for word in self.command:
            if word[:2] in ('1 ', '2 '):
                self._protocol.pipe_data_received(int(word[0]), f'{word[2:]}\n'.encode())
        if 'stay' not in self.command:
            self.end(next((int(word[5:]) for word in self.command if word.startswith('exit ')), 0))

    def send_signal(self, number):
        self.signals.append(signal.Signals(number).name)
        if f'ignore {self.signals[-1]}' not in self.command:
            self.end(-number)

    def end(self, status):
        self._status = status
        for fd in (1, 2):
            self._protocol.pipe_connection_lost(fd, None)
        self._protocol.process_exited()


class Output(io.StringIO):
    """What a command prints; it calls functions once it has the texts in ``when``."""

    def __init__(self, when):
        super().__init__()
        self._when = dict(when)

    def reconfigure(self, **_):
        pass

    def write(self, text):
        count = super().write(text)
        for each in [each for each in self._when if each in self.getvalue()]:
            self._when.pop(each)()
        return count


class Workspace:
    """A folder with launch files and an installed package, and the commands that use them."""

    standin = STANDIN

    def __init__(self, directory):
        self.directory, self.prefix = directory, directory / 'prefix'
        self.share = self.prefix / 'share' / PACKAGE
        self.libexec = self.prefix / 'lib' / PACKAGE
        index = self.prefix / 'share' / 'ament_index' / 'resource_index' / 'packages'
        for path in (self.share / 'launch', self.libexec, index):
            path.mkdir(parents=True)
        (index / PACKAGE).touch()
        self.executable('program', '')
        self.programs, self.at_exit = [], []
        self.on_start = lambda program: None

    def launch_file(self, body, name='test.launch.py', installed=False):
        """Write a launch file from the body of its function, or from `[...]`, its entities."""
        body = textwrap.dedent(body).strip()
        if body.startswith('['):
            body = f'return LaunchDescription({body})'
        path = (self.share / 'launch' if installed else self.directory) / name
        path.write_text(f'{HEADER}{textwrap.indent(body, "    ")}\n')
        return str(path)

    def executable(self, name, script):
        """Write an executable of the package, a Python script."""
        path = self.libexec / name
        path.write_text(f'#!{sys.executable}\n{textwrap.dedent(script)}')
        path.chmod(0o755)

    def run(self, *arguments, when=()):
        """Run `ros2` to its end; return its exit status, output and programs."""
        output, self.programs = Output(when), []
        with (imported_anew() as ros2, contextlib.redirect_stdout(output),
              contextlib.redirect_stderr(output)):
            try:
                status = ros2.main(arguments) or 0
            except SystemExit as end:
                status = end.code
            if isinstance(status, str):  # as sys.exit does
                print(status)
                status = 1
            while self.at_exit:
                self.at_exit.pop()()
        lines, mark = output.getvalue().splitlines(), '[INFO] [launch.user]: '
        return SimpleNamespace(
            status=status, output=output.getvalue().rstrip('\n'), lines=lines,
            messages=[line.removeprefix(mark) for line in lines if line.startswith(mark)],
            programs=self.programs)

    def launch(self, body, *arguments, when=()):
        """Run a launch file."""
        return self.run('launch', self.launch_file(body), *arguments, when=when)


def detached():
    """Take the handlers of `launch` from all loggers; return them."""
    found = [(logger, handler) for logger in logging.Logger.manager.loggerDict.values()
             for handler in getattr(logger, 'handlers', ())
             if type(handler).__module__ == 'launch.logging']
    for logger, handler in found:
        logger.removeHandler(handler)
    return found


@contextlib.contextmanager
def imported_anew():
    """Import the stand-in as a new process does, also beside another `launch`."""
    def loaded():
        return [name for name in sys.modules
                if name.partition('.')[0] in ('launch', 'launch_ros', 'ros2_command')]

    others = {name: sys.modules.pop(name) for name in loaded()}
    handlers = detached()
    level = logging.root.level
    sys.path.insert(0, str(STANDIN))
    try:
        yield importlib.import_module('ros2_command')
    finally:
        detached()
        for logger, handler in handlers:
            logger.addHandler(handler)
        logging.root.setLevel(level)
        for name in loaded():
            del sys.modules[name]
        sys.path.remove(str(STANDIN))
        sys.modules.update(others)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """Return a workspace."""
    made = Workspace(tmp_path)
    execute = asyncio.base_events.BaseEventLoop.subprocess_exec

    async def start(loop, protocol, *command, **options):
        if os.path.basename(command[0]) != 'program':
            return await execute(loop, protocol, *command, **options)
        made.programs.append(Program(protocol(), 1000 + len(made.programs), list(command)))
        made.on_start(made.programs[-1])
        made.programs[-1].run()
        return made.programs[-1], made.programs[-1]._protocol

    environment = dict(os.environ)
    # A file that was written twice in a second, with equal length, would run from old bytecode.
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, 'subprocess_exec', start)
    monkeypatch.setenv(
        'AMENT_PREFIX_PATH', f'{made.prefix}:{environment.get("AMENT_PREFIX_PATH", "")}')
    monkeypatch.setenv('ROS_LOG_DIR', str(tmp_path / 'log'))
    monkeypatch.setattr(atexit, 'register', made.at_exit.append)
    yield made
    os.environ.clear()
    os.environ.update(environment)

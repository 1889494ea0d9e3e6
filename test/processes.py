"""Commands as processes: the fixture ``launch``.

A command line ``ros2 run vdl_ros NAME`` is forked from a server that has imported ROS, PyTorch and
the nodes, but has no DDS context and no threads; a start then takes a tenth of a second of
processor time instead of one to three. Every other command is executed.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from ament_index_python.packages import PackageNotFoundError, get_package_prefix

from vdl_ros.common.opengl import draw_without_display

# Variables that are read when a library is imported: of a forked process they cannot change.
READ_BY_IMPORTS = ('ATEN_', 'LD_', 'MKL_', 'MUJOCO_', 'OMP_', 'ONEDNN_', 'OPENBLAS_',
                   'PYTHONHASHSEED', 'PYTHONUNBUFFERED', 'PYTHONWARNINGS', 'RMW_')
SERVER = multiprocessing.get_context('forkserver')
SERVER.set_forkserver_preload(['preloaded'])
# s from one look for child processes to the next.
_LOOK_S = 0.25


def import_settings(environment) -> dict[str, str]:
    """Return the variables that imports read."""
    return {name: value for name, value in environment.items() if name.startswith(READ_BY_IMPORTS)}


def until(condition, what: str, timeout: float = 240.0):
    """Return the value of ``condition`` as soon as it is true."""
    pause, deadline = threading.Event(), time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f'{what}: not within {timeout:g} s'
        pause.wait(0.005)
    return value


def has_ended(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


draw_without_display()  # as the first import of vdl_ros.arm does, in the server and here
AT_THE_START = import_settings(os.environ)


def without_shared_memory(output):
    """Remove what Fast DDS says of shared memory that processes killed by other tests left."""
    return ''.join(line for line in output.splitlines(keepends=True)
                   if 'RTPS_TRANSPORT_SHM' not in line)


def forked_executable(command: list[str], env: dict[str, str]) -> Path | None:
    """Return the executable if ``command`` is ``ros2 run`` and can be forked, else None."""
    if command[:3] != ['ros2', 'run', 'vdl_ros'] or len(command) < 4:
        return None
    # A node of a launch ends with the parent that its first import saw.
    if import_settings(env) != AT_THE_START or any('launch_id' in word for word in command):
        return None
    with contextlib.suppress(PackageNotFoundError):
        path = Path(get_package_prefix('vdl_ros'), 'lib', 'vdl_ros', command[3])
        return path if path.is_file() and not command[3].startswith('bench_') else None
    return None


def run_executable(words: list[str], log: Path, environment: dict[str, str], folder: str) -> None:
    """Become the process of an executable: session, output, environment, arguments."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [each for each in environment.get('PYTHONPATH', '').split(os.pathsep)
                    if each and each not in sys.path]
    sys.argv = words
    runpy.run_path(words[0], run_name='__main__')


class ForkedProcess:
    """What :class:`Launched` uses of ``subprocess.Popen``, for a process of the fork server."""

    def __init__(self, words: list[str], log: Path, env: dict[str, str]):
        self._process = SERVER.Process(target=run_executable, args=(words, log, env, os.getcwd()))
        self._process.start()
        self.pid = self._process.pid
        # Before it has its own process group a signal to that group reaches nobody.
        pause = threading.Event()
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            while os.getpgid(self.pid) != self.pid:
                pause.wait(0.002)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self._process.exitcode


class Launched:
    """A command in its own process group, with its output in a file."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None,
                 forked: bool = True):
        self.log = log
        self._command = command
        env = env or dict(os.environ)
        self._stream = log.open('wb')
        executable = forked_executable(command, env) if forked else None
        if executable is not None:
            self.process = ForkedProcess([str(executable), *command[4:]], log, env)
        else:
            self.process = subprocess.Popen(
                command, stdout=self._stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=env, start_new_session=True)
        self._forked = executable is not None
        self._family = psutil.Process(self.process.pid)
        self._seen: dict[int, psutil.Process] = {}
        self._look_at = 0.0

    @property
    def output(self) -> str:
        return without_shared_memory(self.log.read_text(errors='replace'))

    def nodes(self, name: str, *words: str) -> list[psutil.Process]:
        """Return the running processes of an executable whose command line has these words."""
        found = []
        if self._forked and self._command[3] == name and {*words} <= {*self._command} \
                and self._is_running(self._family):
            found.append(self._family)
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                line = process.cmdline()
                if any(word.endswith(f'/vdl_ros/{name}') for word in line) and {*words} <= {*line}:
                    found.append(process)
        return found

    def family(self) -> list[psutil.Process]:
        """Return the running processes that this command has started so far."""
        # Not at each poll: a look takes milliseconds.
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            with contextlib.suppress(psutil.Error):
                for child in self._family.children(recursive=True):
                    self._seen.setdefault(child.pid, child)
        return [each for each in self._seen.values() if self._is_running(each)]

    @staticmethod
    def _is_running(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    def wait_for(self, condition, what: str, timeout: float = 240.0):
        """Return the value of ``condition`` once it is true."""
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while time.monotonic() < deadline:
            self.family()
            value = condition()
            if value:
                return value
            pause.wait(0.05)
        raise AssertionError(f'{what}: not within {timeout:g} s\n{self.output[-3000:]}')

    def wait(self, timeout: float = 400.0) -> int:
        """Return the exit status."""
        self.wait_for(lambda: self.process.poll() is not None, 'the end', timeout)
        return self.process.returncode

    def ends(self) -> None:
        """Wait for its end, with status 0 and no process left."""
        assert self.wait() == 0, self.output
        assert self.family() == []

    def interrupt(self) -> None:
        """Send SIGINT to the process group, as Ctrl-C in a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def stop(self) -> None:
        """Interrupt it, and wait for its end."""
        self.interrupt()
        self.ends()

    def end(self) -> None:
        """End all processes; SIGINT first, because killed ones leave shared memory behind."""
        self._look_at = 0.0
        family = [self._family, *self.family()]
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGINT)
        psutil.wait_procs(family, timeout=20.0)
        self._look_at = 0.0
        for process in [self._family, *self.family()]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()
        self._stream.close()


class Launcher:
    """Starts commands, launch files of the package and nodes with parameters."""

    def __init__(self, folder: Path):
        self._folder, self.started = folder, []

    def __call__(self, *command: str, env: dict[str, str] | None = None,
                 forked: bool = True) -> Launched:
        log = self._folder / f'output-{len(self.started)}.txt'
        self.started.append(Launched(list(command), log, env, forked))
        return self.started[-1]

    def file(self, name: str, *arguments: str, **options) -> Launched:
        return self('ros2', 'launch', 'vdl_ros', f'{name}.launch.py', *arguments, **options)

    def node(self, name: str, *parameters: str, namespace: str = '/', **options) -> Launched:
        words = [word for each in parameters for word in ('-p', each)]
        return self('ros2', 'run', 'vdl_ros', name, '--ros-args', '-r', f'__ns:={namespace}',
                    *words, **options)


@pytest.fixture
def launch(tmp_path):
    """Return a :class:`Launcher`, whose processes end with the test."""
    launcher = Launcher(tmp_path)
    yield launcher
    for each in launcher.started:
        each.end()

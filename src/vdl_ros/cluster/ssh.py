"""Requests to the hosts of a cluster, by the system's ssh.

ssh uses keys only and asks for nothing (BatchMode), and refuses a host whose key is not known or
has changed (StrictHostKeyChecking). The system's program is used rather than a library because it
reads the user's configuration, agent and known hosts, and is kept secure by the system.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import IO, Annotated, Literal

import msgspec

from vdl_ros.cluster.host_agent import PREFIX, REPORT_BYTES
from vdl_ros.cluster.plan import Host, Task
from vdl_ros.common.quoting import shown

AGENT = 'vdl_ros.cluster.host_agent'
#: Reads the file of the first word, relative to the home folder, then becomes the command.
IN_SETUP = ('s=$1; shift; case $s in "~/"*) s=$HOME/${s#??};; /*) ;; *) s=$HOME/$s;; esac; '
             'source "$s" > /dev/null && exec "$@"')
_OPTIONS = {
    'BatchMode': 'yes', 'StrictHostKeyChecking': 'yes', 'PasswordAuthentication': 'no',
    'KbdInteractiveAuthentication': 'no', 'ForwardAgent': 'no', 'ForwardX11': 'no',
    'ClearAllForwardings': 'yes', 'ConnectTimeout': '20',
    # A connection over which nothing comes is closed after 20 s.
    'ServerAliveInterval': '5', 'ServerAliveCountMax': '4'}
_SSH_FAILED = 255
_MAX_LINE = 1 << 24
#: Time for the answer of a host that is reached; it only notices a host that hangs, s.
ANSWER_S = 300.0
# Time for ssh to end after its connection is closed, s.
_END_S = 10.0


class HostError(RuntimeError):
    """A host that does not answer, is refused or refuses; the message is one line."""


class TaskState(msgspec.Struct):
    """What a task does, see ``host_agent.states``; with ``follow`` also what its log has new."""

    state: Literal['running', 'ended', 'gone', 'absent']
    pid: int
    status: int | None
    line: str
    text: Annotated[str, msgspec.Meta(max_length=REPORT_BYTES)] = ''
    offset: int = 0


class Answer(msgspec.Struct):
    """What a host answers, which may be anything: each kind of request has some of these.

    ``error`` says why it is not done; ``name`` is of a file of ``size`` bytes, which follow.
    """

    error: str = ''
    tasks: dict[str, TaskState] = {}
    killed: list[str] = []
    left: list[str] = []
    name: str = ''
    size: Annotated[int, msgspec.Meta(ge=0)] = 0


def ssh_command(host: Host) -> list[str]:
    words = ['ssh', '-T', *(['-F', host.ssh_config] if host.ssh_config else [])]
    for name, value in _OPTIONS.items():
        words += ['-o', f'{name}={value}']
    if host.port:
        words += ['-p', str(host.port)]
    if host.user:
        words += ['-l', host.user]
    return [*words, '--', host.address]


def in_setup(host: Host, *command: str) -> str:
    return shlex.join(['bash', '-c', IN_SETUP, 'vdl_ros', host.setup, *command])


def task_command(host: Host, task: Task) -> str:
    """Return the command that does by hand what a request to start a task does."""
    if host.here:
        return task.as_shell()
    return shlex.join([*ssh_command(host), in_setup(host, *shlex.split(task.as_shell()))])


class Request:
    """A request to one host, see ``host_agent``; its answers are read one by one."""

    def __init__(self, host: Host, request: Mapping[str, object]) -> None:
        self.host = host
        command = [sys.executable, '-m', AGENT] if host.here else [
            *ssh_command(host), in_setup(host, 'python3', '-m', AGENT)]
        try:
            # Apart from Ctrl-C in the terminal, which is for the program itself.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, env=dict(os.environ, LC_ALL='C'))
        except OSError as error:
            raise HostError(f'{command[0]} cannot be run: {error.strerror}') from None
        self._errors: deque[bytes] = deque(maxlen=200)
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b'\n')
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says why

    @property
    def stream(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def answer(self, timeout: float = ANSWER_S) -> Answer:
        """Return the next answer; a HostError says why there is none."""
        with self.within(timeout):
            while line := self.stream.readline(_MAX_LINE):
                # What the start files of the user's shell print is left out.
                if not line.startswith(PREFIX):
                    continue
                try:
                    return msgspec.json.decode(line[len(PREFIX):], type=Answer)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise HostError(f'{self.host}: its answer cannot be read: '
                                    f'{shown(str(error), 200)}') from None
            raise self._error()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """End the connection after this time: a host that is stopped keeps it."""
        timer = threading.Timer(seconds, self.end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the connection; what was started on the host goes on."""
        for stream in (self._process.stdin, self._process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:
                continue
        self._process.terminate()
        self._process.wait()
        self._reader.join()

    def end(self) -> None:
        """End the connection from another thread, whose ``answer`` then raises."""
        self._process.terminate()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while line := stream.readline(1000):
                self._errors.append(line)

    def _error(self) -> HostError:
        try:
            # A connection that is closed ends by itself; its status says why.
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            status = self._process.wait()
        self._reader.join()
        lines = [line.decode(errors='replace').strip() for line in self._errors]
        last = next((line for line in reversed(lines) if line), '')
        if status == _SSH_FAILED or (status < 0 and not self.host.here):
            return _ssh_error(self.host, '\n'.join(lines), last)
        where = 'here' if self.host.here else f'with {shown(self.host.setup, 200)}'
        return HostError(f'{self.host}: vdl_ros cannot be run {where}: '
                         f'{shown(last, 200) or f"status {status}"}')


def ask(host: Host, request: Mapping[str, object], timeout: float = 0.0) -> Answer:
    """Return the answer to a request that may take ``timeout`` s; an error is a HostError."""
    with closing(Request(host, request)) as asked:
        found = asked.answer(timeout + ANSWER_S)
    if found.error:
        raise HostError(f'{host}: {shown(found.error, 200)}')
    return found


def _ssh_error(host: Host, text: str, last: str) -> HostError:
    name = f'[{host.address}]:{host.port}' if host.port not in (None, 22) else host.address
    if 'IDENTIFICATION HAS CHANGED' in text:
        return HostError(f'{host}: its host key has changed: if that is right, forget the old '
                         f"one by ssh-keygen -R '{name}' and check the new one")
    if 'Host key verification failed' in text or 'host key is known' in text:
        return HostError(f'{host}: its host key is not known: connect once with ssh and compare '
                         'its fingerprint')
    if 'Permission denied' in text:
        return HostError(f'{host}: it refuses the keys of this user: '
                         f'{shown(last, 200)}')
    return HostError(f'{host} does not answer: {shown(last, 200) or "the connection was closed"}')

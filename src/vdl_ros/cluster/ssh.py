"""Requests to the hosts of a cluster, by the system's ssh.

ssh uses keys only and asks for nothing (BatchMode), and refuses a host whose key is not known or
has changed (StrictHostKeyChecking). The system's program is used rather than a library because it
reads the user's configuration, agent and known hosts, and is kept secure by the system.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import IO, Any

from vdl_ros.cluster.host_agent import PREFIX
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
# Time for the answer of a host that is reached; it only notices a host that hangs, s.
_ANSWER_S = 300.0
# Time for ssh to end after its connection is closed, s.
_END_S = 10.0


class HostError(RuntimeError):
    """A host that does not answer, is refused or refuses; the message is one line."""


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
    return shlex.join(
        [*ssh_command(host), in_setup(host, *shlex.split(task.as_shell()))])


class Request:
    """A request to one host, see ``host_agent``; its answers are read one by one."""

    def __init__(self, host: Host, request: Mapping[str, object]) -> None:
        self._host = host
        command = [sys.executable, '-m', AGENT] if host.here else [
            *ssh_command(host), in_setup(host, 'python3', '-m', AGENT)]
        try:
            # Apart from Ctrl-C in the terminal, which is for the program itself.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, env=dict(os.environ, LC_ALL='C'))
        except OSError as error:
            raise HostError(f'{command[0]} cannot be run: {error.strerror}') from None
        self._errors: list[bytes] = []
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

    def answer(self) -> dict[str, Any]:
        """Return the next answer; a HostError says why there is none."""
        while line := self.stream.readline(_MAX_LINE):
            # What the start files of the user's shell print is left out.
            if line.startswith(PREFIX):
                try:
                    found = json.loads(line[len(PREFIX):])
                except ValueError:
                    break
                if isinstance(found, dict):
                    return found
        raise self._error()

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
            for line in stream:
                self._errors = [*self._errors[-200:], line[:1000]]

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
        if status == _SSH_FAILED or (status < 0 and not self._host.here):
            return _ssh_error(self._host, '\n'.join(lines), last)
        where = 'here' if self._host.here else f'with {shown(self._host.setup, 200)}'
        return HostError(f'{self._host}: vdl_ros cannot be run {where}: '
                         f'{shown(last, 200) or f"status {status}"}')


def ask(
    host: Host, request: Mapping[str, object], timeout: float = 0.0,
) -> dict[str, Any]:
    """Return the answer to a request that may take ``timeout`` s; an error is a HostError."""
    with closing(Request(host, request)) as asked:
        # A host that is stopped keeps its connection.
        timer = threading.Timer(timeout + _ANSWER_S, asked.end)
        timer.daemon = True
        timer.start()
        try:
            found = asked.answer()
        finally:
            timer.cancel()
    if 'error' in found:
        raise HostError(f'{host}: {shown(str(found["error"]), 200)}')
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

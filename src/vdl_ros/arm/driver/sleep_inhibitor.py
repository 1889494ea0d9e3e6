"""Keeps the machine awake while an arm is connected, where systemd-logind runs.

A machine that suspends stops driver and guardian at once, and the arm follows its last command
until somebody cuts its power. ``systemd-inhibit`` holds a lock for as long as its command runs;
here that is a shell that reads a pipe of the driver, which the kernel closes when the driver ends.
"""

import contextlib
import select
import shutil
import subprocess

_COMMAND = ('--what=sleep:idle:handle-lid-switch', '--mode=block', '--who=vdl_ros',
            '--why=a robot arm is connected', 'sh', '-c', 'echo held; exec cat >/dev/null')
# Without it newer versions may ask a person for a password; older ones, as 252, do not know it.
_NO_QUESTION = '--no-ask-password'
_HELD = b'held\n'
# logind answers at once, or asks a person, who is not waited for, s.
_ANSWER_S = 2.0


class SleepInhibitor:
    """A lock against sleep, held from ``start`` to ``end`` or to the end of this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def held(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Take the lock unless it is held; return '' or, in one line, why it cannot be taken."""
        if self.held:
            return ''
        self.end()
        command = shutil.which('systemd-inhibit')
        if command is None:
            return 'no systemd-inhibit is installed'
        problem = self._hold(command, _NO_QUESTION)
        return self._hold(command) if _NO_QUESTION in problem else problem

    def _hold(self, *command: str) -> str:
        """Run ``command`` with the lock; return '' or, in one line, why that fails."""
        try:
            self._process = subprocess.Popen(
                [*command, *_COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, bufsize=0, start_new_session=True)
        except OSError as error:
            return f'{command[0]}: {error.strerror}'
        assert self._process.stdout is not None
        answer = b''
        if select.select([self._process.stdout], [], [], _ANSWER_S)[0]:
            answer = self._process.stdout.read(200) or b''
        if answer == _HELD:
            return ''
        self.end()
        reason = ' '.join(answer.decode(errors='replace').split())
        return f'{command[0]}: {reason or f"no answer for {_ANSWER_S:g} s"}'

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.wait()

"""Steps of the set-up: progress, logs, and stamps that avoid repeating a step."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# Lines of uv about files of 10 MiB and more.
DOWNLOAD = re.compile(r'^Downloading (\S+ \((?:\d{2,}\.\d+MiB|.+GiB)\))$', re.MULTILINE)
# Time between lines of a step that takes long, s.
_LINE_S = 10.0
NO_NETWORK = (
    'Temporary failure in name resolution', 'Name or service not known',
    'Network is unreachable', 'NewConnectionError', 'ConnectTimeoutError', 'ProxyError',
    'Connection refused', 'No route to host', 'ReadTimeoutError', 'NameResolutionError',
)


class SetupError(RuntimeError):
    """The set-up cannot continue; the message is one line with the remedy."""


def print_progress(text: str) -> None:
    print(f'[setup] {text}', flush=True)


def fingerprint(parts: Iterable[str | Path]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        digest.update(len(content).to_bytes(8, 'big') + content)
    return digest.hexdigest()


class Stamp:
    """A file with the fingerprint of a step's inputs when it last ran."""

    def __init__(self, path: Path, wanted: str) -> None:
        self.path, self.wanted = path, wanted

    @property
    def fresh(self) -> bool:
        return self.path.is_file() and self.path.read_text() == self.wanted

    def set(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.wanted)


def run(
    title: str, command: Sequence[str | Path], log: Path, *,
    env: Mapping[str, str] | None = None, cwd: Path | None = None,
) -> None:
    """Run ``command`` with output to ``log``; print the elapsed time and large downloads.

    The time stands in one line of a terminal, and in a line every ten seconds elsewhere.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    finished = threading.Event()

    is_terminal = sys.stdout.isatty()
    erase = '\r\x1b[K' if is_terminal else ''

    def report() -> None:
        shown, due = 0, _LINE_S
        while True:
            ended = finished.wait(1.0)
            for download in DOWNLOAD.findall(log.read_text(errors='replace'))[shown:]:
                print(f'{erase}[setup]   {download}', flush=True)
                shown += 1
            if ended:
                return
            elapsed = time.monotonic() - started
            if is_terminal:
                print(f'\r[setup] {title} ... {elapsed:.0f} s', end='', flush=True)
            elif elapsed >= due:
                due += _LINE_S
                print_progress(f'{title} ... {elapsed:.0f} s')

    log.write_bytes(b'')
    if not is_terminal:
        print_progress(f'{title} ...')
    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        with log.open('wb') as stream:
            status = subprocess.run(
                [str(word) for word in command], stdout=stream, stderr=subprocess.STDOUT,
                env=None if env is None else dict(env), cwd=cwd, check=False).returncode
    finally:
        finished.set()
        reporter.join()
        print(erase, end='')
    if status:
        text = log.read_text(errors='replace')
        if any(message in text for message in NO_NETWORK):
            raise SetupError(
                f'{title}: the package index cannot be reached; connect this machine to the '
                f'network (or set pip\'s proxy) and run it again; log: {log}')
        errors = [line.strip() for line in text.splitlines() if 'error' in line.lower()]
        reason = errors[-1][:200] if errors else f'exit status {status}'
        raise SetupError(f'{title}: {reason}; log: {log}')
    print_progress(f'{title}: {time.monotonic() - started:.0f} s')

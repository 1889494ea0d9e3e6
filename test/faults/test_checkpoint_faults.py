"""Rows of the fault matrix: a checkpoint is written whole or not at all."""

import errno
import io
import itertools
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch

from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint

SAVING = Path(__file__).parent / 'saving.py'
PASSES = 'old or new is loaded, `OSError` only'


def save(path, step):
    """Write a checkpoint with tensors smaller and larger than a file's buffer."""
    tensors = {f'{name} {size}': torch.full((size,), float(step))
               for name in ('weights', 'first moments', 'second moments')
               for size in (1, 100, 5_000, 40_000)}
    save_checkpoint(path, config={'env_id': 'x'}, learner=tensors, progress={'step': step})


def loaded_step(path):
    """Return the step of a checkpoint all of whose content is of one step."""
    found = load_checkpoint(path)
    step = found['progress']['step']
    assert all(bool((each == step).all()) for each in found['learner'].values())
    return step


class Faults:
    """Lets one operation on files fail, counted from 0; None: counts only."""

    def __init__(self, patch, failing=None, kind=''):
        self.count, self._failing, self._kind = 0, failing, kind
        self._full = False
        self.writes = set()
        for name in ('fsync', 'replace', 'rename'):
            patch.setattr(os, name, self._failing_call(getattr(os, name)))
        patch.setattr(io, 'open', self._open(io.open))

    def _is_due(self):
        self.count += 1
        return self.count - 1 == self._failing

    def _failing_call(self, real):
        def call(*args, **kwargs):
            if self._is_due():
                number = errno.EIO if self._kind == 'EIO' else errno.ENOSPC
                raise OSError(number, os.strerror(number))
            return real(*args, **kwargs)
        return call

    def _open(self, real):
        faults = self

        class File(io.FileIO):
            """A file each of whose writes is one call of the kernel."""

            def write(self, data):
                faults.writes.add(faults.count)
                due = faults._is_due()
                if due and faults._kind.startswith('short'):
                    faults._full = faults._kind == 'short write, then ENOSPC'
                    return super().write(bytes(data)[:len(data) // 2])
                if due or faults._full:
                    number = errno.EIO if faults._kind == 'EIO' else errno.ENOSPC
                    raise OSError(number, os.strerror(number))
                return super().write(data)

        def open_file(file, mode='r', *args, **kwargs):
            if mode != 'wb':
                return real(file, mode, *args, **kwargs)
            return io.BufferedWriter(File(file, 'w'))
        return open_file


def all_cases():
    """Return the last operation of a save, and each with each fault, for a new and an old file."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        save(Path(folder) / 'checkpoint.pt', 0)
    # The last one syncs the folder, when the new content has its name.
    return faults.count - 1, [(n, kind, exists) for n, kind, exists in itertools.product(
                range(faults.count), ('ENOSPC', 'EIO', 'short write', 'short write, then ENOSPC'),
                (False, True))
            if n in faults.writes or not kind.startswith('short')]


LAST, CASES = all_cases()


@pytest.mark.fault_row(
    'the n-th write, fsync or rename of a checkpoint fails (ENOSPC, EIO, short write)', PASSES,
    share=8, reduced=len(CASES), full=len(CASES))
def test_a_failing_operation_leaves_the_old_or_the_new_checkpoint(trials, tmp_path):
    def save_with_a_fault(index, _):
        failing, kind, exists = CASES[index]
        folder = tmp_path / str(index)
        folder.mkdir()
        path = folder / 'checkpoint.pt'
        if exists:
            save(path, 1)
        raised = None
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, failing, kind)
            try:
                save(path, 2)
            except OSError as error:
                raised = error.errno
        assert faults.count > failing
        if kind == 'short write':
            assert raised is None, 'the rest is written by another call'
        else:
            assert raised == (errno.EIO if kind == 'EIO' else errno.ENOSPC)
        files = os.listdir(folder)
        assert files == ['checkpoint.pt'] or not (files or exists)
        if files:
            assert loaded_step(path) == (2 if raised is None or failing == LAST else 1)
        save(path, 3)
        assert loaded_step(path) == 3

    trials.run(save_with_a_fault)


@pytest.fixture
def saving():
    """Return a process that starts children which save in a loop; see saving.py."""
    process = subprocess.Popen(
        [sys.executable, str(SAVING)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_number(stream, what):
    """Return the number in the next line of a pipe."""
    assert select.select([stream], [], [], 120.0)[0], f'{what}: not within 120 s'
    # Unbuffered: another line that waits would be hidden from select.
    line = b''
    while not line.endswith(b'\n'):
        data = os.read(stream.fileno(), 1)
        assert data, f'{what}: the process has ended'
        line += data
    return int(line)


@pytest.mark.process
@pytest.mark.fault_row(
    'SIGKILL while saving in a loop', PASSES, share=3, reduced=100, full=200)
def test_a_kill_while_saving_leaves_the_last_or_the_next_checkpoint(trials, saving, tmp_path):
    pause = threading.Event()
    out = saving.stdout

    def kill_while_saving(index, rng):
        folder = tmp_path / str(index)
        folder.mkdir()
        path = folder / 'checkpoint.pt'
        saving.stdin.write(f'{int(10 ** rng.uniform(1, 6))} {path}\n'.encode())
        saving.stdin.flush()
        child = next_number(out, 'the child')
        last = 0
        for _ in range(int(rng.integers(1, 6))):
            last = next_number(out, 'a save')
        # The fault itself: anywhere in a save.
        pause.wait(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        while (step := next_number(out, 'the end')) >= 0:
            last = step
        assert loaded_step(path) in (last, last + 1)
        left = set(os.listdir(folder)) - {'checkpoint.pt'}
        assert left <= {'checkpoint.pt.partial'}
        save(path, 10**6)
        assert os.listdir(folder) == ['checkpoint.pt']
        assert loaded_step(path) == 10**6
        return {'saves before the kill': last}

    trials.run(kill_while_saving)

"""Rows of the fault matrix: a checkpoint is written whole or not at all."""

import contextlib
import errno
import io
import itertools
import os
import threading

import pytest
import torch
from fault_children import save_in_a_loop
from processes import SERVER

from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint

CASES = 116  # operations of a save, and what they can do, for a new and an old file
#: Safety bound, s.
PATIENCE_S = 120.0
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

    def _fail(self):
        number = errno.EIO if self._kind == 'EIO' else errno.ENOSPC
        raise OSError(number, os.strerror(number))

    def _failing_call(self, real):
        def call(*args, **kwargs):
            return self._fail() if self._is_due() else real(*args, **kwargs)
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
                return faults._fail() if due or faults._full else super().write(data)

        def open_file(file, mode='r', *args, **kwargs):
            if mode != 'wb':
                return real(file, mode, *args, **kwargs)
            return io.BufferedWriter(File(file, 'w'))
        return open_file


def all_cases(folder):
    """Return each operation of a save with each fault, for a new and an old file."""
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        save(folder / 'checkpoint.pt', 0)
    return [(n, kind, exists) for n, kind, exists in itertools.product(
                range(faults.count), ('ENOSPC', 'EIO', 'short write', 'short write, then ENOSPC'),
                (False, True))
            if n in faults.writes or not kind.startswith('short')]


@pytest.mark.fault_row(
    'the n-th write, fsync or rename of a checkpoint fails (ENOSPC, EIO, short write)', PASSES,
    smoke=8, reduced=CASES, full=CASES)
def test_a_failing_operation_leaves_the_old_or_the_new_checkpoint(trials, tmp_path):
    cases = all_cases(tmp_path)
    assert len(cases) == CASES

    def save_with_a_fault(index, _):
        failing, kind, exists = cases[index]
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
            # The last one syncs the folder, when the new content has its name.
            done = raised is None or failing == cases[-1][0]
            assert loaded_step(path) == (2 if done else 1)
        save(path, 3)
        assert loaded_step(path) == 3

    trials.run(save_with_a_fault)


@pytest.mark.process
@pytest.mark.fault_row(
    'SIGKILL while saving in a loop', PASSES, reduced=100, full=200)
def test_a_kill_while_saving_leaves_the_last_or_the_next_checkpoint(trials, tmp_path):
    pause = threading.Event()

    def kill_while_saving(index, rng):
        folder = tmp_path / str(index)
        folder.mkdir()
        path = folder / 'checkpoint.pt'
        receiver, sender = SERVER.Pipe(duplex=False)
        child = SERVER.Process(
            target=save_in_a_loop, args=(int(10 ** rng.uniform(1, 6)), path, sender))
        child.start()
        sender.close()
        try:
            for _ in range(int(rng.integers(1, 6))):
                assert receiver.poll(PATIENCE_S), f'no save within {PATIENCE_S:g} s'
                last = receiver.recv()
            # The fault itself: anywhere in a save.
            pause.wait(rng.uniform(0.0, 0.03))
        finally:
            child.kill()
            child.join()
        with contextlib.suppress(EOFError, OSError):
            while True:
                last = receiver.recv()
        assert loaded_step(path) in (last, last + 1)
        left = set(os.listdir(folder)) - {'checkpoint.pt'}
        assert left <= {'checkpoint.pt.partial'}
        save(path, 10**6)
        assert os.listdir(folder) == ['checkpoint.pt']
        assert loaded_step(path) == 10**6
        return {'saves before the kill': last}

    trials.run(kill_while_saving)

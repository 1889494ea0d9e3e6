"""Calls of code of others: what it may raise, how long it takes, and what it leaves changed."""

import atexit
import contextlib
import ctypes
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import parent_process
from time import monotonic
from typing import Any, NoReturn

import numpy as np

from vdl_ros.common.children import end_now
from vdl_ros.common.command_line import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    alarms,
    handlers_to_restore,
    hears_signals,
    is_deaf,
    leave,
    restore_alarms,
    restore_native_handlers,
    restore_signals,
    say,
)

# Time after which a call that has not returned is said, s; again after 10 s, later 60 s.
_TELL_S = 5.0
_LOOK_S = 0.5


def foreign_errors() -> tuple[type[BaseException], ...]:
    """Return what code of others may raise, for ``except``: all; a panic of Rust is no Exception.

    A KeyboardInterrupt is the user's, unless a Ctrl-C sets an event in this process.
    """
    if hears_signals():
        return (BaseException,)
    return tuple(each for each in BaseException.__subclasses__() if each is not KeyboardInterrupt)


class ForeignCall:
    """The context of a call of foreign code; calls in one thread are not nested.

    A call that does not return is said, as ``name: doing for 5 s``, unless ``silent``. What the
    code changes of Python, NumPy and PyTorch, also of the clocks, is undone after the call, and is
    there again in the next one: it may be what an environment needs, and would change what a
    policy computes. Less depth of calls, a seed of PyTorch's random numbers, output to elsewhere,
    handlers of signals, the mode of new files and a removed working directory are undone for good;
    of handlers, the directory and the output's files, where a look takes longer than all else, a
    call that is made ``often`` undoes only a handler of SIGINT, with which others are, and an
    alarm, which would raise its error in other code, or end the process. A process that the code
    has forked, and that returns here, ends: it would go on as this one does, under its name.
    """

    def __init__(
        self, name: str, doing: str, *, often: bool = False, silent: bool = False,
    ) -> None:
        self._name, self._doing, self._often, self._silent = name, doing, often, silent

    def __enter__(self) -> None:
        self._depth, self._ours = sys.getrecursionlimit(), _read()
        self._handlers = [] if self._often else handlers_to_restore()
        self._alarms = alarms()
        if not self._often:
            _leave_removed_folder()
        if not (self._often or _running):
            _mask[:] = [_umask()]
        # The call of another thread may have led them elsewhere for a moment.
        self._streams = () if _running else (sys.stdout, sys.stderr)
        self._outputs = {} if _running or self._often else _outputs()
        self._process, self._seed = os.getpid(), _torch_seed()
        if _theirs:
            _write(_theirs, self._ours)
        self._since = monotonic()
        self._due = math.inf if self._silent else _TELL_S
        _running.add(self)
        if not _watcher:
            _watcher.append(threading.Thread(target=_watch, name='foreign code', daemon=True))
            _watcher[0].start()
            _tell_of_exit()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if os.getpid() != self._process:
            self._end_fork(error)
        # First: a call needs depth. More of it harms nobody.
        if sys.getrecursionlimit() < self._depth:
            sys.setrecursionlimit(self._depth)
        _running.discard(self)
        restore_alarms(self._alarms)
        if self._handlers or is_deaf():
            restore_signals(self._handlers or handlers_to_restore())
        _restore_outputs(self._outputs, self._streams)
        _close(self._outputs)
        if not self._often:
            _leave_removed_folder()
        os.umask(_mask[0])
        if self._seed is not None and _torch_seed() != self._seed:
            # Else each episode would explore as the one before, with the same random numbers.
            sys.modules['torch'].manual_seed((self._seed * 0x5851F42D4C957F2D + 1) % 2**63)
        found = _read()
        if len(self._ours) < len(found):  # it has imported PyTorch
            torch = sys.modules['torch']
            self._ours += [torch.float32, False, True, torch.device('cpu'), 0, False]
        _theirs[:] = [] if found == self._ours else found
        if _theirs:
            _write(self._ours, found)

    def _end_fork(self, error: BaseException | None) -> NoReturn:
        code = error.code if isinstance(error, SystemExit) else EXIT_BAD_INPUT
        if not isinstance(error, SystemExit):
            say(f'{self._name}: a process that it has forked {self._doing} goes on as the '
                'training does: that process is ended', sys.stderr)
        os._exit(code if isinstance(code, int) else int(code is not None))

    def tell_if_slow(self) -> None:
        if (seconds := monotonic() - self._since) >= self._due:
            self._due = seconds + _TELL_S
            say(f'{self._name}: {self._doing} for {seconds:.0f} s')


# The calls that have not returned, and the thread that looks at them.
_running: set[ForeignCall] = set()
_watcher: list[threading.Thread] = []
# This process, while it may be ended without a word.
_processes: list[int] = []
# What the last call has changed, as of _read; empty: nothing.
_theirs: list[Any] = []


def _watch() -> None:
    while True:
        threading.Event().wait(_LOOK_S)
        for call in _running.copy():
            call.tell_if_slow()
        restore_native_handlers()


def _tell_of_exit() -> None:
    """End the process with a line and status 1 if native code calls exit(), or code os._exit()."""
    libc = ctypes.CDLL(None)
    _processes.append(os.getpid())

    def take_back() -> None:
        # Python calls exit() too, when none of its code can run any more.
        _processes.clear()
        libc.__cxa_finalize(on_exit)

    on_exit = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: _end('native code has ended the program by exit()'))
    os._exit = _exit
    atexit.register(take_back)
    # The last argument is the handle by which it is taken back.
    libc.__cxa_atexit(on_exit, None, on_exit)


def _end(what: str) -> None:
    if os.getpid() in _processes:  # not one that native code has forked
        _processes.clear()
        names = ', '.join({call._name for call in _running}) or 'an environment or a library'
        end_now(f'{names}: {what}', 1)


def _exit(status: int) -> NoReturn:
    # Not a Ctrl-C during imports, nor a worker, which Python ends so.
    if status != EXIT_INTERRUPTED and parent_process() is None:
        _end(f'it has ended the program by os._exit({status})')
    leave(status)


def _torch_seed() -> int | None:
    torch = sys.modules.get('torch')
    return None if torch is None else int(torch.initial_seed())


def _umask() -> int:
    # It can only be read by setting it; a file of another thread would be private.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _outputs() -> dict[int, int]:
    """Return copies of the files of stdout and stderr."""
    found = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):  # closed, or too many files are open
            found[number] = os.dup(number)
    return found


def _restore_outputs(files: dict[int, int], streams: tuple[Any, ...]) -> None:
    for number, copy in files.items():
        with contextlib.suppress(OSError):  # the code has closed all files
            os.dup2(copy, number)
    for number, name, before in zip((1, 2), ('stdout', 'stderr'), streams, strict=False):
        found = getattr(sys, name)
        if found is not before and _is_of(found, number):
            # It would close the file at its end; and what it writes may fail at any time.
            _wrappers[id(found)] = found
        if _is_closed(before):
            # As by ``with sys.stdout``, which leaves the file open.
            with contextlib.suppress(OSError):
                before = open(  # noqa: SIM115
                    number, 'w', buffering=1, errors='backslashreplace', closefd=False)
        if found is not before:
            setattr(sys, name, before)


def _close(files: dict[int, int]) -> None:
    for copy in files.values():
        with contextlib.suppress(OSError):
            os.close(copy)


@contextlib.contextmanager
def own_outputs() -> Iterator[Callable[[], None]]:
    """Yield a function that undoes what calls made ``often`` did to output; so does the end."""
    files, streams = _outputs(), (sys.stdout, sys.stderr)
    try:
        yield lambda: _restore_outputs(files, streams)
    finally:
        _restore_outputs(files, streams)
        _close(files)


# Streams of others for the files of stdout and stderr.
_wrappers: dict[int, Any] = {}


def _is_of(stream: Any, number: int) -> bool:
    with contextlib.suppress(BaseException):
        return bool(stream.fileno() == number)
    return False


def _is_closed(stream: Any) -> bool:
    try:
        return bool(stream.closed)
    except Exception as error:
        return isinstance(error, ValueError)  # its buffer was detached


_mask = [_umask()]


# The working directories of the program and of the last look.
_folders: list[str] = []


def _leave_removed_folder() -> None:
    try:
        _folders[1:] = [os.getcwd()]
    except FileNotFoundError:
        # PyTorch asks for it when it makes an optimizer.
        for each in (*reversed(_folders), '/'):
            with contextlib.suppress(OSError):
                return os.chdir(each)


def _read() -> list[Any]:
    found: list[Any] = [np.geterr(), warnings.filters[:],
                        [getattr(time, name) for name in _CLOCKS]]
    if (torch := sys.modules.get('torch')) is not None:
        # The default device has a getter that takes five times as long.
        found += [torch.get_default_dtype(), torch.is_inference_mode_enabled(),
                  torch.is_grad_enabled(), torch.empty(0).device,
                  torch.get_deterministic_debug_mode(), torch.is_anomaly_enabled()]
    return found


def _write(values: list[Any], before: list[Any]) -> None:
    """Set what is to be different from ``before``."""
    for set_value, value, old in zip(_SETTERS, values, before, strict=False):
        if value != old:
            set_value(value)


# Functions that code replaces to stop or to turn the time.
_CLOCKS = ('time', 'monotonic', 'perf_counter')


def _set_clocks(functions: list[Any]) -> None:
    for name, function in zip(_CLOCKS, functions, strict=True):
        setattr(time, name, function)


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]


# The context of inference that is entered, or left, for good.
_inference: list[Any] = []


def _set_inference(value: bool) -> None:
    if _inference:
        _inference.pop().__exit__(None, None, None)
    _inference.append(sys.modules['torch'].inference_mode(value))
    _inference[0].__enter__()


_SETTERS: Any = (
    lambda value: np.seterr(**value), _set_filters, _set_clocks,
    lambda value: sys.modules['torch'].set_default_dtype(value),
    # Before the gradient, which it sets too.
    _set_inference, lambda value: sys.modules['torch'].set_grad_enabled(value),
    # With a device every function of PyTorch takes longer.
    lambda value: sys.modules['torch'].set_default_device(None if value.type == 'cpu' else value),
    lambda value: sys.modules['torch'].set_deterministic_debug_mode(value),
    lambda value: sys.modules['torch'].autograd.set_detect_anomaly(value))

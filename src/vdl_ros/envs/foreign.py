"""Calls of code of others: what it may raise, how long it takes, and what it must not take."""

import math
import sys
import threading
from time import monotonic

from vdl_ros.common.command_line import (
    handlers_to_restore,
    hears_signals,
    is_deaf,
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

    A call that does not return is said, as ``name: doing for 5 s``, unless ``silent``. Handlers of
    signals that the code has taken, and a seed that it has set of PyTorch's random numbers, are
    undone after the call; after one that is made ``often`` handlers only if one is of SIGINT.
    """

    def __init__(
        self, name: str, doing: str, *, often: bool = False, silent: bool = False,
    ) -> None:
        self._name, self._doing, self._often, self._silent = name, doing, often, silent

    def __enter__(self) -> None:
        self._handlers = [] if self._often else handlers_to_restore()
        self._seed = _torch_seed()
        self._since = monotonic()
        self._due = math.inf if self._silent else _TELL_S
        _running.add(self)
        if not _watcher:
            _watcher.append(threading.Thread(target=_watch, name='foreign code', daemon=True))
            _watcher[0].start()

    def __exit__(self, *_: object) -> None:
        _running.discard(self)
        if self._handlers or is_deaf():
            restore_signals(self._handlers or handlers_to_restore())
        if self._seed is not None and _torch_seed() != self._seed:
            # Else each episode would explore as the one before, with the same random numbers.
            sys.modules['torch'].manual_seed((self._seed * 0x5851F42D4C957F2D + 1) % 2**63)

    def tell_if_slow(self) -> None:
        if (seconds := monotonic() - self._since) >= self._due:
            self._due = seconds + _TELL_S
            say(f'{self._name}: {self._doing} for {seconds:.0f} s')


# The calls that have not returned, and the thread that looks at them.
_running: set[ForeignCall] = set()
_watcher: list[threading.Thread] = []


def _watch() -> None:
    while True:
        threading.Event().wait(_LOOK_S)
        for call in _running.copy():
            call.tell_if_slow()
        restore_native_handlers()


def _torch_seed() -> int | None:
    torch = sys.modules.get('torch')
    return None if torch is None else int(torch.initial_seed())

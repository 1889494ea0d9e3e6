"""What environments start and leave behind, and how processes end that environments hold up."""

import _thread
import contextlib
import faulthandler
import gc
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NoReturn

import psutil

from vdl_ros import PARENT_PID
from vdl_ros.common.command_line import EXIT_BAD_INPUT, EXIT_INTERRUPTED, say
from vdl_ros.common.quoting import cause, place_of, shown

#: Environment variable of a process and of all that it starts, also in sessions of their own.
MARK = 'VDL_ROS_STARTED_BY'
#: The mark that a launch gave this process, but not what it starts: a folder that it makes when
#: its program has ended with status 0.
OWN_MARK = 'VDL_ROS_OWN_MARK'
#: Its value of a process that outlives all others: it stops the motors that they have left on.
GUARDIAN = 'nobody'
# A process may be starting another one while it is ended.
_ROUNDS, _ROUND_S = 3, 5.0
# Time between two looks at whether a process is to end, s.
_WATCH_S = 0.5
#: Longest time from a signal to the end of a process that has a run to save, s.
SAVING_S = 60.0
#: The same while an environment is imported, made or drawn, s.
MAKING_S = 8.0
# Time from a signal to the line that says what is waited for, and to the next such line, s.
_PATIENCE_S, _AGAIN_S = 3.0, 9.0
# Time until a line says that a start or an environment's close() lasts, and until the latter is
# given up, s.
_LONG_S, _CLOSING_S = 5.0, 30.0
# What has lasted less is no news, s. When a block was last there, or was told of.
_NEWS_S, _silence = 1.0, {'block': -math.inf, 'line': -math.inf}
# Time from the end of a program to that of its process, s: less than launch waits after a SIGINT.
_LEAVING_S = 4.0
# Time after which native code that holds Python's lock is ended with the process, s.
_HELD_S = 5.0
# When the process is to have ended after a signal, by time.monotonic().
_deadline = [math.inf]
# The same, until the block of ending_within is over.
_block_deadline = [math.inf]
_own_marks: list[str] = []
_saves: list[Callable[[], int | None]] = []


def take_mark() -> None:
    """Mark what this process will start, by the environment variable ``MARK``.

    It ends what has a mark of its own at its end; what has that of a launch, the launch does.
    """
    if MARK not in os.environ:
        os.environ[MARK] = f'{os.getpid()} {time.time_ns()}'
        _own_marks.append(os.environ[MARK])


def _is_marked(process: psutil.Process, mark: str) -> bool:
    with contextlib.suppress(psutil.Error):
        # A zombie has no environment, which is an error.
        if process.environ().get(MARK) == mark:
            # A tracker ends by itself, and frees the shared memory that others have left.
            return process.pid != os.getpid() and not any(
                'multiprocessing.resource_tracker' in word for word in process.cmdline())
    return False


def end_marked(mark: str) -> list[str]:
    """Kill the processes of this user that have this mark of an ended process; return names."""
    names = []
    for _ in range(_ROUNDS):
        found = [each for each in psutil.process_iter(['name']) if _is_marked(each, mark)]
        for each in found:
            with contextlib.suppress(psutil.Error):
                each.kill()
                names.append(each.info['name'])
        if not found:
            break
        psutil.wait_procs(found, _ROUND_S)
    return names


def end_left(mark: str) -> str:
    """Do as :func:`end_marked`; return the end of a line that names them, or ''."""
    counts = ', '.join(f'{n} {name}' for name, n in Counter(end_marked(mark)).items())
    return f'left processes, which are ended now: {counts}' if counts else ''


def end_children() -> None:
    """Kill the processes that this one started, and that theirs started, but no guardian."""
    for each in _children():
        with contextlib.suppress(psutil.Error):
            each.kill()


def _children() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if each.environ().get(MARK) != GUARDIAN:
                found.append(each)
    return found


def _start(watch: Callable[[], None]) -> None:
    """Run a function in a thread of its own, unless none can start, as at the end of Python."""
    # Not Thread.start: it waits for ever for a thread that lacks memory at its birth.
    with contextlib.suppress(RuntimeError, MemoryError):
        _thread.start_new_thread(watch, ())


def _end_at(deadline: float) -> None:
    """End the process a while after that time, with a dump of all threads; infinity: do not.

    A thread of C does it: none of Python's runs while native code holds its lock.
    """
    faulthandler.cancel_dump_traceback_later()
    if deadline < math.inf:
        with contextlib.suppress(RuntimeError):  # no thread can start
            faulthandler.dump_traceback_later(
                max(deadline - time.monotonic(), 0.0) + _HELD_S, exit=True, file=2)


@contextlib.contextmanager
def ending_within(seconds: float, name: str, stop: threading.Event) -> Iterator[None]:
    """End the process, and what it started, if the block lasts longer than that after ``stop``.

    For blocks that call environments: a step or ``close()`` of one may never return.
    """
    over, thread = threading.Event(), threading.get_ident()

    def set_block_deadline(deadline: float) -> None:
        _block_deadline[0] = deadline
        _end_at(deadline)

    def watch() -> None:
        while not stop.is_set():
            if over.wait(_WATCH_S):
                return
        _deadline[0] = time.monotonic() + seconds
        set_block_deadline(_deadline[0])
        if over.is_set():
            set_block_deadline(math.inf)
        wait = min(_PATIENCE_S, seconds)
        while not over.wait(wait):
            place = place_of(sys._current_frames().get(thread))
            if (left := _deadline[0] - time.monotonic()) <= 0.0:
                status = _save(name, seconds)
                end_now(f'{name}: ended {seconds:g} s after the signal to end, in the middle of '
                        f'{place}', status)
                return
            say(f'{name}: waits for {place}, and ends in {left:.0f} s without it')
            wait = min(_AGAIN_S, left)

    if seconds < math.inf:
        _start(watch)
    try:
        yield
    finally:
        over.set()
        if stop.is_set():
            set_block_deadline(math.inf)


@contextlib.contextmanager
def saving(save: Callable[[], int | None]) -> Iterator[None]:
    """Call ``save`` before :func:`ending_within` ends the process in the middle of the block.

    It may return the status that the process ends with.
    """
    _saves.append(save)
    try:
        yield
    finally:
        _saves.remove(save)


def _save(name: str, seconds: float) -> int:
    """Save, and return the status to end with."""
    status = 1
    if _saves:
        # A disk may hang too.
        _end_at(time.monotonic() + seconds)
    for save in _saves:
        try:
            status = save() or status
        except Exception as error:
            say(f'{name}: not saved: {cause(error)}', sys.stderr)
    return status


@contextlib.contextmanager
def closing(name: str) -> Iterator[None]:
    """Say that a block, the ``close()`` of an environment, lasts long; at last end the process.

    A restart does not help, so the status is that of bad input.
    """
    over, began = threading.Event(), time.monotonic()

    def watch() -> None:
        if over.wait(_LONG_S):
            return
        # After a signal to end the process ends sooner.
        limit, waited = min(_CLOSING_S, _block_deadline[0] - began), _LONG_S
        while waited < _CLOSING_S:
            say(f'{name} has not returned in {waited:g} s; it is given up after {limit:.2g} s')
            wait = min(_AGAIN_S, _CLOSING_S - waited)
            if over.wait(wait):
                return
            waited += wait
        end_now(f'{name} has not returned in {_CLOSING_S:g} s: ended without it', EXIT_BAD_INPUT)

    _end_at(min(time.monotonic() + _CLOSING_S, _block_deadline[0]))
    _start(watch)
    try:
        yield
    finally:
        over.set()
        _end_at(_block_deadline[0])


@contextlib.contextmanager
def telling(text: str) -> Iterator[None]:
    """Say every 5 s that a block still does what ``text`` says, as of a start that takes long."""
    over, began = threading.Event(), time.monotonic()
    # A start is several blocks: the silence of one goes on in the next.
    if began - _silence['block'] > _LONG_S:
        _silence['line'] = began

    def watch() -> None:
        while not over.wait(max(_NEWS_S, _silence['line'] + _LONG_S - time.monotonic())):
            _silence['line'] = time.monotonic()
            say(f'{text} for {_silence["line"] - began:.0f} s')

    _start(watch)
    try:
        yield
    finally:
        over.set()
        _silence['block'] = time.monotonic()


def end_now(line: str, status: int) -> None:
    """Print why, and end the process and what it has started, whatever holds it up."""
    try:
        say(line, sys.stderr)
        end_children()
    finally:
        os._exit(status)


def run_program(name: str, main: Callable[[], int | None]) -> NoReturn:
    """Exit with the status that ``main`` returns, whatever environments and libraries have left.

    Python would wait for ever for threads that are no daemons, for processes of multiprocessing,
    for functions of ``atexit`` and for destructors.
    """
    # Taken out: an environment may start programs of this package, which end before this one.
    mark, status = os.environ.pop(OWN_MARK, ''), 1
    try:
        # A launch goes on in one that an environment has removed.
        if not mark:
            _check_folder(name)
        status = main() or 0
        if mark and not status:
            # Not a file: an environment may have closed all, or have opened too many.
            with contextlib.suppress(OSError):
                os.makedirs(mark)
        sys.exit(status)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except KeyboardInterrupt:
        # Ctrl-C before a node has installed its signal handlers.
        status = EXIT_INTERRUPTED
        sys.exit(status)
    finally:
        # Python restores the default action of SIGINT before it exits: a late Ctrl-C would turn
        # a successful exit into a crash.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        seconds = min(_LEAVING_S, max(_deadline[0] - time.monotonic(), 1.0))
        # For destructors, of C too, during which no thread of Python runs. Long enough for a busy
        # machine: the status would be lost.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(5 * _LEAVING_S))

        def give_up() -> None:
            threading.Event().wait(seconds)
            end_now(f'{name}: ended {seconds:.0f} s after its program, without waiting for '
                    f'{_left()}', status)

        _start(give_up)
        # A thread of an environment may miss what ends here.
        threading.excepthook = lambda _: None
        # It cannot look if no file can be opened.
        with contextlib.suppress(Exception):
            # A launch that was killed ends nothing any more.
            for each in [mark] if mark and os.getppid() != PARENT_PID else _own_marks:
                if left := end_left(each):
                    say(f'{name}: {left}', sys.stderr)
        # Not in end_now: it may block.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # Once, for files and simulators that nothing refers to any more. Python would look at all
        # objects several times, for a second with PyTorch.
        gc.collect()
        gc.freeze()


def _check_folder(name: str) -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        say(f'{name}: the working directory was removed: change to one that exists', sys.stderr)
        sys.exit(2)


def _left() -> str:
    """Return what is still running at the end of a program."""
    found = [f'the thread {shown(each.name)}' for each in threading.enumerate()
             if not each.daemon and each is not threading.main_thread()]
    # OSError: no file can be opened.
    with contextlib.suppress(psutil.Error, OSError):
        found += [f'the process {shown(each.name())}' for each in _children()]
    more = f' (and {len(found) - 1} more)' if len(found) > 1 else ''
    return f'{found[0]}{more}' if found else 'a function of atexit or a destructor'

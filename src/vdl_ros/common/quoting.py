"""Text from messages, bags and errors of other programs, for a log line."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

_LIBRARY = Path(traceback.__file__).parent
# Characters of an error's message.
_MAX_LENGTH = 200


def quoted(value: object, limit: int = 80) -> str:
    """Return the ``repr`` of ``value``, at most ``limit`` characters long.

    Names come from other processes. Printed as they are, they could clear the terminal, forge a
    line of the log, or fill it.
    """
    # Cut first: the repr of a long text takes as long as the text, and that of lists that share
    # their elements may fill the memory.
    text = ''
    for piece in _pieces(value, limit):
        text += piece
        if len(text) > limit:
            break
    text = ' '.join(text.splitlines())  # that of a tensor has several
    return text if len(text) <= limit else f'{text[:limit - 3]}...'


def _pieces(value: object, limit: int) -> Iterator[str]:
    """Yield the ``repr`` of plain data piece by piece; texts in it are cut."""
    if isinstance(value, dict):
        yield from _joined('{', ((each, value[each]) for each in value), '}', limit)
    elif isinstance(value, list | tuple):
        end = ']' if isinstance(value, list) else ',)' if len(value) == 1 else ')'
        yield from _joined('[' if end == ']' else '(', ((each,) for each in value), end, limit)
    else:
        yield text_of(value[:limit] if isinstance(value, str | bytes) else value, repr)


def _joined(begin: str, rows: Iterable[tuple[object, ...]], end: str, limit: int) -> Iterator[str]:
    """Yield rows of a value, or of a key and a value."""
    yield begin
    for number, row in enumerate(rows):
        yield ', ' if number else ''
        for place, each in enumerate(row):
            yield ': ' if place else ''
            yield from _pieces(each, limit)
    yield end


def shown(text: str, limit: int = 80) -> str:
    """Return ``text``, quoted unless it is printable and at most ``limit`` characters long.

    For names and sentences that are usually harmless and read better without quotes.
    """
    return text if len(text) <= limit and text.isprintable() else quoted(text, limit)


def text_of(value: object, make: Callable[[object], str] = str) -> str:
    """Return ``str`` or ``repr`` of a value of others, whose method may raise anything."""
    try:
        return make(value)
    except BaseException as error:
        return f'<{_kind(value)} whose text raises {_kind(error)}>'


def _kind(value: object) -> str:
    # Not by the metaclass of others, which may raise too.
    return str(vars(type)['__name__'].__get__(type(value)))


def cause(error: BaseException) -> str:
    """Return kind, message and place of an error in somebody else's code, in one line.

    The place is that of the innermost frame, unless the error was raised in the caller itself.
    """
    text = ' '.join(text_of(error).split())[:_MAX_LENGTH]
    if not text.isprintable():
        text = quoted(text, _MAX_LENGTH)
    # Not by the attribute, which may raise.
    trace = vars(BaseException)['__traceback__'].__get__(error)
    place = _innermost(traceback.extract_tb(trace)[1:])
    place = f' ({place})' if place else ''
    return f'{_kind(error)}{": " if text else ""}{text}{place}'


def _innermost(frames: Iterable[traceback.FrameSummary]) -> str:
    """Return file and line of the innermost frame, or ''."""
    found = [frame for frame in frames
             if not frame.filename.startswith('<') and 'importlib' not in frame.filename]
    return f'{Path(found[-1].filename).name}:{found[-1].lineno}' if found else ''


def place_of(frame: FrameType | None) -> str:
    """Return what a thread is doing, as ``function() (file:line)``, outside Python's library."""
    if frame is None:
        return 'its last steps'
    # Not all of a deep recursion: the innermost is named.
    found = traceback.extract_stack(frame, limit=20)
    own = [each for each in found if _LIBRARY not in Path(each.filename).parents
           or 'site-packages' in each.filename] or found
    return f'{own[-1].name}() ({_innermost(own)})'


def in_one_line(error: BaseException) -> str:
    """Return the message of a ValueError, which names what is wrong; of another :func:`cause`."""
    text = ' '.join(text_of(error).split()) if isinstance(error, ValueError) else ''
    return text or cause(error)

"""Values of a file against the types that they must have: a fault is one line, for its author."""

import re
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import suggestion

T = TypeVar('T')
# Of each pattern, what an error says is allowed.
_ALLOWED: dict[str, str] = {}
_WORDS = {'float': 'a number', 'int': 'a whole number', 'bool': 'true or false', 'str': 'text',
          'object': 'a mapping', 'array': 'a list'}


def matching(pattern: str, allowed: str) -> msgspec.Meta:
    """Return what limits a text to a pattern; an error says ``allowed``."""
    whole = rf'^(?:{pattern})\Z'
    _ALLOWED[whole] = allowed
    return msgspec.Meta(pattern=whole)


def choice(*names: str) -> msgspec.Meta:
    """Return what limits a text to some names."""
    return matching('|'.join(map(re.escape, names)), f'one of {", ".join(map(repr, names))}')


def converted(
    value: object, kind: type[T], where: str, error: type[ValueError], *, strict: bool = True,
) -> T:
    """Return ``value``, of the file ``where``, as a struct; ``strict``: texts are no numbers.

    The ``error`` that is raised is one line with file, place, value and what is allowed.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as fault:
        raise error(f'{where}: {_explained(str(fault), value, kind)}') from None


def read_json(path: Path, kind: type[T]) -> T:
    """Return a JSON file of at most 16 MB as a struct; ValueError as of :func:`converted`."""
    try:
        with path.open('rb') as file:
            found = msgspec.json.decode(file.read(1 << 24))
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f'{path} cannot be read: {error}') from None
    return converted(found, kind, str(path), ValueError)


def _explained(fault: str, value: Any, kind: type) -> str:
    text, _, path = fault.partition(' - at `$')
    place = ''
    for name, index in re.findall(r'\.([^.\[`]+)|\[(\d+|\.\.\.)\]', path):
        if index == '...':  # msgspec does not say which key of a mapping
            break
        value = value[name] if name else value[int(index)]
        place += f'{": " if place else ""}{name[:80]}' if name else f'[{index}]'
    place += ': ' if place else ''
    if found := re.fullmatch('Object missing required field `(.*)`', text):
        return f'{place}{found[1]}: missing'
    if found := re.fullmatch('Object contains unknown field `(.*)`', text, re.DOTALL):
        known = {name for each in vars(sys.modules[kind.__module__]).values()
                 if isinstance(each, type) and issubclass(each, msgspec.Struct)
                 for name in each.__struct_encode_fields__}
        return f'{place}{found[1][:80]}: no such key{suggestion(found[1], known)}'
    if not (found := re.match(r'Expected `(\w+)[^`]*`(, got `.*`)?(.*)', text)):
        return f'{place}{text[:500]}'  # of __post_init__
    _, pattern, shape = found[3].rpartition(' matching regex ')
    allowed = _ALLOWED[shape[1:-1].encode().decode('unicode_escape')] if pattern else (
        _WORDS.get(found[1], found[1]) + found[3])
    return f'{place}{quoted(value)} is not allowed: {allowed}'

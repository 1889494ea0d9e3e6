"""Files of tensors and plain values: written whole, and read without running code in them."""

import math
import pickle
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch._weights_only_unpickler import _get_allowed_globals

from vdl_ros.common.files import atomic_file
from vdl_ros.common.memory import check_archive

# A pickle may ask for one of any length.
_get_allowed_globals().pop('builtins.bytearray', None)


class TensorFileError(ValueError):
    """A file that cannot be used; the message names the file and the reason."""


def save_tensor_file(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors and plain values to a file beside ``path``, then rename it."""
    with atomic_file(path) as partial, partial.open('wb') as file:
        stream = _Stream(file)
        try:
            torch.save(dict(content), cast(IO[bytes], stream))
        except RuntimeError:
            if stream.failure is not None:
                raise stream.failure from None
            raise


class _Stream:
    """A stream that remembers its error: ``torch.save`` makes a RuntimeError of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._stream.write(data)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        self._stream.flush()


# Values and characters in a file, those that several share counted for each: written out they
# would fill the memory.
_MAX_VALUES = 1 << 22


def _counts(content: object, most: int) -> int:
    """Return the number of plain values and characters, or one above ``most``."""
    count, waiting = 0, [content]
    while waiting and count <= most:
        each = waiting.pop()
        if isinstance(each, str | bytes | dict | list | tuple | set | frozenset):
            count += len(each)
            if count <= most and not isinstance(each, str | bytes):
                waiting.extend(each)
                waiting.extend(each.values() if isinstance(each, dict) else ())
    return count


def load_tensor_file(path: Path, kind: str) -> dict[str, Any]:
    """Return what :func:`save_tensor_file` wrote; ``kind`` is what the file is, for messages.

    Raises:
        TensorFileError: missing, corrupt or malicious.
    """
    if not path.is_file():
        raise TensorFileError(f'{path}: no such file')
    try:
        check_archive(path)
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch does not check the checksums
        if broken:
            raise zipfile.BadZipFile(f'wrong checksum of {broken}')
        found = torch.load(path, map_location='cpu', weights_only=True)
        if _repeats(found, set()):
            raise ValueError('a tensor has more numbers than the file')
    except pickle.UnpicklingError:
        raise TensorFileError(f'{path}: contains more than tensors and plain values, or is '
                              'corrupt: refused') from None
    # What torch raises at a damaged pickle is of any kind.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise TensorFileError(f'{path}: not a readable {kind}: {reason}') from None
    if not isinstance(found, dict):
        raise TensorFileError(f'{path}: not a {kind} of this program')
    if _counts(found, _MAX_VALUES) > _MAX_VALUES:
        raise TensorFileError(f'{path}: not a readable {kind}: more than {_MAX_VALUES} values')
    return found


def _repeats(value: object, seen: set[int]) -> bool:
    """Return whether a tensor within ``value`` repeats its numbers, which copies would not."""
    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.nbytes > value.untyped_storage().nbytes()
    within = list(value.values()) if isinstance(value, dict) else value
    return isinstance(within, (list, tuple)) and any(_repeats(each, seen) for each in within)


# Rounds, of which none begins after so many seconds: nothing is said meanwhile.
_ROUNDS, _LONGEST_S = 5, 2.0


def faster_in_bfloat16(
    work: Callable[[], object], clock: Callable[[], float] = time.perf_counter,
) -> bool:
    """Return whether ``work`` is faster with autocast to bfloat16 than without.

    Processors without bfloat16 instructions are many times slower with it. Both are run in turn
    and the fastest run of each is compared, because other programs may use the machine.
    """
    fastest, end = {False: math.inf, True: math.inf}, clock() + _LONGEST_S
    for _ in range(_ROUNDS):
        if clock() >= end:
            break
        for bfloat16 in fastest:
            with torch.autocast('cpu', torch.bfloat16, enabled=bfloat16):
                began = clock()
                work()
                fastest[bfloat16] = min(fastest[bfloat16], clock() - began)
    return fastest[True] < fastest[False]

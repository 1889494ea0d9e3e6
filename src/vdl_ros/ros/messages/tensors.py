"""
Conversion of named NumPy arrays to ``vdl_ros/Tensor`` messages and back, without pickle.

Encoding copies once: assigning one ``array.array`` to a ``uint8[]`` field is a thousand times
faster than element by element, and passing it to the constructor would copy twice more. Decoding
returns views of the message's bytes.
"""

from __future__ import annotations

import array
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.msg import Tensor

__all__ = ['TensorError', 'check_axes', 'from_tensors', 'num_bytes', 'to_tensors']

_DTYPES = {name: np.dtype(name) for name in (
    'bool', 'uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'uint64', 'int64',
    'float16', 'float32', 'float64')}
_MAX_TENSORS = 4096
# Those of NumPy 2.
_MAX_AXES = 64


def _takes_check_fields() -> bool:
    try:
        Tensor(check_fields=True)
    except AssertionError:  # Humble always checks and has no such argument
        return False
    return True


# Only a message that checks its fields accepts an array without a copy.
_CHECKED = {'check_fields': True} if _takes_check_fields() else {}

if sys.byteorder != 'little':
    raise ImportError('tensors on topics are little-endian, and this machine is big-endian')


class TensorError(ValueError):
    """A tensor that cannot be sent or read; the message has its name and the reason."""


def to_tensors(arrays: Mapping[str, NDArray[Any]]) -> list[Tensor]:
    """
    Return messages for named arrays.

    Raises:
        TensorError: a dtype that cannot be sent.
    """
    tensors = []
    for name, value in arrays.items():
        if value.dtype.name not in _DTYPES:
            raise TensorError(f'tensor {name!r}: dtype {value.dtype} cannot be sent; '
                              f'one of {", ".join(_DTYPES)}')
        data = array.array('B')
        # Not the array's dtype, which may be big-endian.
        ordered = np.ascontiguousarray(value, _DTYPES[value.dtype.name])
        data.frombytes(ordered.reshape(-1).view(np.uint8).data)
        tensor = Tensor(
            name=name, dtype=value.dtype.name, shape=list(value.shape), **_CHECKED)
        tensor.data = data
        tensors.append(tensor)
    return tensors


def check_axes(tensor: Tensor) -> None:
    """
    Check the number of axes, before anything is computed from their sizes.

    Raises:
        TensorError: too many axes.
    """
    if len(tensor.shape) > _MAX_AXES:
        raise TensorError(f'tensor {quoted(tensor.name)}: shape of {len(tensor.shape)} axes is '
                          f'not allowed: at most {_MAX_AXES}')


def from_tensors(tensors: Iterable[Tensor]) -> dict[str, NDArray[Any]]:
    """
    Return named arrays: read-only views of the messages' bytes.

    Raises:
        TensorError: an unknown dtype, a wrong number of bytes, a duplicate name.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in tensors:
        name = tensor.name
        dtype = _DTYPES.get(tensor.dtype)
        if dtype is None:
            raise TensorError(f'tensor {quoted(name)}: dtype {quoted(tensor.dtype)} is not one '
                              f'of {", ".join(_DTYPES)}')
        if name in arrays:
            raise TensorError(f'tensor {quoted(name)}: duplicate name')
        # The product of a million sizes takes hours.
        check_axes(tensor)
        shape = tuple(int(size) for size in tensor.shape)
        wanted = math.prod(shape) * dtype.itemsize
        if wanted != len(tensor.data):
            raise TensorError(f'tensor {quoted(name)}: {len(tensor.data)} bytes, but '
                              f'{tensor.dtype} {quoted(shape)} has {quoted(wanted)}')
        if dtype.kind == 'b':
            # NumPy does not check that the bytes of a bool are 0 or 1.
            value = np.frombuffer(tensor.data, np.uint8)
            if value.size and int(value.max()) > 1:
                raise TensorError(
                    f'tensor {quoted(name)}: a bool has the value {int(value.max())}')
        try:
            value = np.frombuffer(tensor.data, dtype).reshape(shape)
        except ValueError as error:  # more axes, or a larger shape, than NumPy supports
            raise TensorError(
                f'tensor {quoted(name)}: shape of {len(shape)} axes: {error}') from None
        value.flags.writeable = False
        arrays[name] = value
        if len(arrays) > _MAX_TENSORS:
            raise TensorError(f'more than {_MAX_TENSORS} tensors in one message')
    return arrays


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total size of the data of ``tensors``, in bytes."""
    return sum(len(tensor.data) for tensor in tensors)

"""Conversion of named NumPy arrays to ``vdl_ros/Tensor`` messages and back, without pickle.

Encoding copies once: assigning one ``array.array`` to a ``uint8[]`` field is a thousand times
faster than element by element, and passing it to the constructor would copy twice more. Decoding
returns views of the message's bytes, unless they are compressed.
"""

import array
import contextlib
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.msg import Tensor

_DTYPES = {name: np.dtype(name) for name in (
    'bool', 'uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'uint64', 'int64',
    'float16', 'float32', 'float64')}
_COMPRESSED = '; zstd'  # after the name of a dtype
_MIN_COMPRESSED = 512  # of smaller arrays compression saves less than a datagram
# The fastest of those that shrink frames of Atari games a hundred times.
_LEVEL = 1
_MAX_TENSORS = 4096
_MAX_AXES = 64  # those of NumPy 2


# Only a message that checks its fields accepts an array without a copy; Humble always checks.
_CHECKED: dict[str, bool] = {}
with contextlib.suppress(AssertionError):
    Tensor(check_fields=True)
    _CHECKED['check_fields'] = True

if sys.byteorder != 'little':
    raise ImportError('tensors on topics are little-endian, and this machine is big-endian')


class TensorError(ValueError):
    """A tensor that cannot be sent or read; the message has its name and the reason."""


def to_tensors(arrays: Mapping[str, NDArray[Any]], compression: str = 'none') -> list[Tensor]:
    """Return messages for arrays by name; with zstd those are compressed that it makes smaller."""
    tensors = []
    compressor = zstandard.ZstdCompressor(level=_LEVEL) if compression == 'zstd' else None
    for name, value in arrays.items():
        if value.dtype.name not in _DTYPES:
            raise TensorError(f'tensor {name!r}: dtype {value.dtype} cannot be sent; '
                              f'one of {", ".join(_DTYPES)}')
        data = array.array('B')
        # Not the array's dtype, which may be big-endian.
        ordered = np.ascontiguousarray(value, _DTYPES[value.dtype.name])
        content, suffix = ordered.reshape(-1).view(np.uint8).data, ''
        if compressor is not None and len(content) >= _MIN_COMPRESSED:
            smaller = compressor.compress(content)
            if len(smaller) < len(content):
                content, suffix = memoryview(smaller), _COMPRESSED
        data.frombytes(content)
        tensor = Tensor(
            name=name, dtype=value.dtype.name + suffix, shape=list(value.shape), **_CHECKED)
        tensor.data = data
        tensors.append(tensor)
    return tensors


def array_length(tensor: Tensor) -> int:
    _check_axes(tensor)
    length = len(tensor.data)
    if not tensor.dtype.endswith(_COMPRESSED):
        return length
    whole = math.prod(int(size) for size in tensor.shape) * _dtype(tensor).itemsize
    if whole <= length:
        raise TensorError(f'tensor {quoted(tensor.name)}: {length} compressed bytes of {whole}')
    return whole


def from_tensors(
    tensors: Iterable[Tensor], *, checked_lengths: bool = False,
) -> dict[str, NDArray[Any]]:
    """Return named arrays, read-only views of the messages' bytes; raises TensorError.

    ``checked_lengths``: the caller has compared each :func:`array_length` with what it expects.
    Otherwise compressed arrays are refused: a few bytes may say to be billions.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for tensor in tensors:
        name, dtype, data = tensor.name, _dtype(tensor), tensor.data
        if name in arrays:
            raise TensorError(f'tensor {quoted(name)}: duplicate name')
        # The product of a million sizes takes hours.
        _check_axes(tensor)
        shape = tuple(int(size) for size in tensor.shape)
        wanted = math.prod(shape) * dtype.itemsize
        if tensor.dtype.endswith(_COMPRESSED):
            if not checked_lengths:
                raise TensorError(f'tensor {quoted(name)}: compressed arrays are not allowed here')
            data = _decompressed(tensor, wanted)
        if wanted != len(data):
            raise TensorError(f'tensor {quoted(name)}: {len(data)} bytes, but '
                              f'{tensor.dtype} {quoted(shape)} has {quoted(wanted)}')
        if dtype.kind == 'b':
            # NumPy does not check that the bytes of a bool are 0 or 1.
            largest = int(np.frombuffer(data, np.uint8).max(initial=0))
            if largest > 1:
                raise TensorError(f'tensor {quoted(name)}: a bool has the value {largest}')
        try:
            value = np.frombuffer(data, dtype).reshape(shape)
        except ValueError as error:  # more axes, or a larger shape, than NumPy supports
            raise TensorError(
                f'tensor {quoted(name)}: shape of {len(shape)} axes: {error}') from None
        value.flags.writeable = False
        arrays[name] = value
        if len(arrays) > _MAX_TENSORS:
            raise TensorError(f'more than {_MAX_TENSORS} tensors in one message')
    return arrays


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    dtype = _DTYPES.get(tensor.dtype.removesuffix(_COMPRESSED))
    if dtype is None:
        raise TensorError(f'tensor {quoted(tensor.name)}: dtype {quoted(tensor.dtype)} is not one '
                          f'of {", ".join(_DTYPES)}')
    return dtype


def _check_axes(tensor: Tensor) -> None:
    if len(tensor.shape) > _MAX_AXES:
        raise TensorError(f'tensor {quoted(tensor.name)}: shape of {len(tensor.shape)} axes is '
                          f'not allowed: at most {_MAX_AXES}')


def _decompressed(tensor: Tensor, length: int) -> bytes:
    """Return ``length`` bytes; TensorError if the data say or have another number."""
    try:
        says = zstandard.get_frame_parameters(tensor.data).content_size
        if says != length:
            raise TensorError(f'tensor {quoted(tensor.name)}: compressed data of {says} bytes, '
                              f'but {tensor.dtype} {quoted(list(tensor.shape))} has {length}')
        return zstandard.ZstdDecompressor().decompress(
            tensor.data, max_output_size=length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise TensorError(
            f'tensor {quoted(tensor.name)}: cannot be decompressed: {error}') from None


def num_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(len(tensor.data) for tensor in tensors)

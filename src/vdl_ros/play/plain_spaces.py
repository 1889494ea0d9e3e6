"""Gymnasium's spaces as plain values, which a file can hold."""

import math
from typing import Annotated, Any, Literal

import numpy as np
from gymnasium import spaces
from msgspec import Meta, Struct

from vdl_ros.common.quoting import quoted

# Of all parts of a space together: what it takes in memory.
_MAX_NUMBERS = 1 << 24
_Size = Annotated[int, Meta(ge=1, le=_MAX_NUMBERS)]
_Whole = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]


class Box(Struct, frozen=True, tag=True):
    """``low`` and ``high`` are the least and the largest bound; None: infinite."""

    shape: tuple[_Size, ...]
    dtype: Literal['bool', 'uint8', 'uint16', 'uint32', 'int8', 'int16', 'int32', 'int64',
                   'float16', 'float32', 'float64']
    low: float | None
    high: float | None


class Discrete(Struct, frozen=True, tag=True):
    """A whole number from ``start`` on."""

    n: _Size
    start: _Whole


class MultiDiscrete(Struct, frozen=True, tag=True):
    """Flat lists for all numbers of ``shape``."""

    shape: tuple[_Size, ...]
    nvec: tuple[_Size, ...]
    start: tuple[_Whole, ...]


class MultiBinary(Struct, frozen=True, tag=True):
    """Zeros and ones."""

    shape: tuple[_Size, ...]


class Tuple(Struct, frozen=True, tag=True):
    """Spaces one after the other."""

    parts: tuple['PlainSpace', ...]


class Dict(Struct, frozen=True, tag=True):
    """The order is that of the observations' numbers."""

    parts: dict[str, 'PlainSpace']


PlainSpace = Box | Discrete | MultiDiscrete | MultiBinary | Tuple | Dict


def to_plain(space: spaces.Space[Any]) -> PlainSpace:
    """Return a space, one that ``envs/canonical_spaces.py`` supports, as plain values.

    ValueError: a part has a name that is no text.
    """
    if isinstance(space, spaces.Box):
        low, high = float(space.low.min()), float(space.high.max())
        return Box(space.shape, space.dtype.name, low if math.isfinite(low) else None,
                   high if math.isfinite(high) else None)
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscrete(space.nvec.shape, tuple(space.nvec.ravel().tolist()),
                             tuple(space.start.ravel().tolist()))
    if isinstance(space, spaces.MultiBinary):
        return MultiBinary(space.shape)
    if isinstance(space, spaces.Dict):
        for key in space.spaces:
            if not isinstance(key, str):
                raise ValueError(
                    f'observation: {quoted(key)} is not allowed as the name of a part in a file: '
                    'text; load_policy takes the folder of the run, too')
        return Dict({key: to_plain(each) for key, each in space.spaces.items()})
    assert isinstance(space, spaces.Tuple)
    return Tuple(tuple(map(to_plain, space.spaces)))


def from_plain(plain: PlainSpace) -> spaces.Space[Any]:
    """Return the space of :func:`to_plain`; ValueError: there is none, or it is too large."""
    if (numbers := _numbers(plain)) > _MAX_NUMBERS:
        raise ValueError(f'a space of {numbers} numbers is not allowed: at most {_MAX_NUMBERS}')
    return _made(plain)


def _numbers(plain: PlainSpace) -> int:
    if isinstance(plain, Tuple):
        return sum(map(_numbers, plain.parts))
    if isinstance(plain, Dict):
        return sum(map(_numbers, plain.parts.values()))
    return 1 if isinstance(plain, Discrete) else math.prod(plain.shape)


def _made(plain: PlainSpace) -> spaces.Space[Any]:
    if isinstance(plain, Box):
        dtype: Any = np.dtype(plain.dtype).type
        low, high = (end if bound is None else bound for bound, end in (
            (plain.low, -math.inf), (plain.high, math.inf)))
        return spaces.Box(low, high, plain.shape, dtype)
    if isinstance(plain, Discrete):
        return spaces.Discrete(plain.n, start=plain.start)
    if isinstance(plain, MultiDiscrete):
        return spaces.MultiDiscrete(np.reshape(plain.nvec, plain.shape),
                                    start=np.reshape(plain.start, plain.shape))
    if isinstance(plain, MultiBinary):
        return spaces.MultiBinary(plain.shape)
    if isinstance(plain, Dict):
        # Of a dict it would sort the names.
        return spaces.Dict([(key, _made(each)) for key, each in plain.parts.items()])
    return spaces.Tuple(map(_made, plain.parts))

"""Observations and actions of any supported space, in the few forms that policies take.

Observations of one part, numbers or an image (Box), stay as they are. Else all numbers of the
space are one vector, float32, and there may be one image beside it
(``common/observation_spaces.py``). The vector has the parts in the order of Gymnasium's space;
Discrete and MultiDiscrete are one-hot; uint8 is scaled to [0, 1], as by the network. Numbers of
a Box are in the machine's byte order, and of at most 64 bits.

Actions are one whole number from 0 (Discrete), some of them (MultiDiscrete [A]), or numbers in
one axis (Box [A]).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from numpy.typing import NDArray

from vdl_ros.common.observation_spaces import ImageAndVector, is_image, number_error

_NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_ONE_HOT = (spaces.Discrete, spaces.MultiDiscrete)
# A Discrete space may be large, its one-hot vector and the outputs for its actions not.
_MAX_NUMBERS = 1 << 20
_MAX_ACTIONS = 1 << 16


class ObservationError(ValueError):
    """An observation that its space has not; the message begins with its part, in brackets."""


@dataclass(frozen=True)
class _Part:
    """A part of an observation without parts of its own; ``path`` leads to it."""

    path: tuple[str | int, ...]
    space: spaces.Space[Any]

    @property
    def name(self) -> str:
        return '.'.join(map(str, self.path))

    def error(self, reason: str) -> ObservationError:
        return ObservationError(f'{"".join(f"[{key!r}]" for key in self.path)}: {reason}')

    def of(self, observations: Any) -> NDArray[Any]:
        """Return this part of a batch of observations, [B, ...]."""
        for key in self.path:
            observations = observations[key]
        return np.asarray(observations)

    def checked(self, observations: Any) -> NDArray[Any]:
        """Return this part as :meth:`of`; ObservationError: a number that is not allowed."""
        values = self.of(observations)
        numbers = values
        if isinstance(self.space, ImageAndVector):
            numbers = self.space.split(values)[1]
        if reason := number_error(numbers):
            raise self.error(reason)
        return values


def _parts(space: spaces.Space[Any], path: tuple[str | int, ...] = ()) -> Iterator[_Part]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, each in inner:
            yield from _parts(each, (*path, key))
    elif isinstance(space, _NUMBERS):
        yield _Part(path, space)
    else:
        raise ValueError(
            f'{_named("observations", path)}{type(space).__name__} is not supported: '
            + ', '.join(kind.__name__ for kind in (*_NUMBERS, spaces.Dict, spaces.Tuple)))


def _without_unsupported(space: spaces.Space[Any]) -> str:
    """Return which setting leaves unsupported parts of a Dict out, or '' if there is no such."""
    kept = []
    for key, each in space.spaces.items() if isinstance(space, spaces.Dict) else ():
        try:
            list(_parts(each))
        except ValueError:
            continue
        kept.append(key)
    # JSON has no other keys.
    if not kept or not all(isinstance(each, str | int) for each in kept):
        return ''
    wrapper = json.dumps([{'FilterObservation': {'filter_keys': kept}}])
    return f"; env_wrappers:='{wrapper}' leaves it out"


def _named(what: str, path: tuple[str | int, ...]) -> str:
    return f'{what}: ' + (f"part '{'.'.join(map(str, path))}': " if path else '')


def _native(space: spaces.Box) -> spaces.Box:
    """Return a Box of numbers that PyTorch and messages have, for one of any."""
    dtype = space.dtype.newbyteorder('=')
    if dtype == np.longdouble:
        dtype = np.dtype(np.float64)
    return space if dtype == space.dtype else spaces.Box(
        space.low.astype(dtype), space.high.astype(dtype), dtype=dtype.type)


class Column(NamedTuple):
    """A part of an observation in the vector of its numbers.

    ``encoding`` is 'one-hot', '1/255' for bytes that are scaled, or ''.
    """

    name: str
    first: int
    size: int
    encoding: str


class _OneHot:
    """Writes whole numbers as one-hot vectors."""

    def __init__(self, part: _Part) -> None:
        space: Any = part.space
        self._part = part
        self._sizes = np.atleast_1d(space.nvec if hasattr(space, 'nvec') else space.n).ravel()
        self._first = np.atleast_1d(space.start).ravel()
        # Column of the value 0.
        self._column = np.cumsum(self._sizes) - self._sizes

    def write(self, values: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write values [B, ...] to ``out`` [B, sum of the sizes]."""
        index = values.reshape(len(values), -1) - self._first
        wrong = (index < 0) | (index >= self._sizes)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            first = self._first[column]
            raise self._part.error(f'{first + index[row, column]} is not allowed: {first} to '
                                   f'{first + self._sizes[column] - 1}')
        out[...] = 0.0
        out[np.arange(len(out))[:, None], index + self._column] = 1.0


class Observations:
    """Converts the observations of a vector environment.

    Raises:
        ValueError: the space has an unsupported part, two images, no numbers or too many.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        try:
            parts = list(_parts(space))
        except ValueError as error:
            raise ValueError(f'{error}{_without_unsupported(space)}') from None
        self._only = parts[0] if len(parts) == 1 and isinstance(parts[0].space, spaces.Box) \
            else None
        self._image: _Part | None = None
        # With their columns, and for discrete ones what writes them.
        self._numbers: list[tuple[_Part, slice, _OneHot | None]] = []
        if self._only is not None:
            box: Any = self._only.space
            self.space: Any = _native(box)
            if not flatdim(self.space):
                raise ValueError(f'observations: {self.space} is not supported: it has no numbers')
            return
        size = 0
        for part in parts:
            if is_image(part.space):
                if self._image is not None:
                    raise ValueError(
                        f"observations: two images, '{self._image.name}' and '{part.name}', are "
                        'not supported: one, and any numbers')
                self._image = part
                continue
            columns = slice(size, size := size + flatdim(part.space))
            self._numbers.append(
                (part, columns, _OneHot(part) if isinstance(part.space, _ONE_HOT) else None))
        if not 1 <= size <= _MAX_NUMBERS:
            raise ValueError(f'observations: {size} numbers, discrete ones one-hot, are not '
                             f'supported: 1 to {_MAX_NUMBERS}')
        image: Any = None if self._image is None else self._image.space
        self.space = spaces.Box(-np.inf, np.inf, (size,), np.float32) if image is None \
            else ImageAndVector(image, size)

    @property
    def columns(self) -> list[Column]:
        """Where the parts are in the vector of numbers; [] for observations of one part."""
        return [Column(part.name, columns.start, columns.stop - columns.start,
                       'one-hot' if one_hot is not None
                       else '1/255' if part.space.dtype == np.uint8 else '')
                for part, columns, one_hot in self._numbers]

    def convert(self, observations: Any) -> NDArray[Any]:
        """Return observations of a vector environment as one array [B, ...].

        A number that is not allowed is an ObservationError.
        """
        if self._only is not None:
            values = self._only.checked(observations)
            return values.astype(self.space.dtype, casting='same_kind', copy=False)
        first = self._numbers[0][0].of(observations)
        rows = np.empty((len(first), *self.space.shape), self.space.dtype)
        vectors = rows
        if isinstance(self.space, ImageAndVector):
            assert self._image is not None
            images, vectors = self.space.split(rows)
            np.copyto(images, self._image.of(observations), casting='same_kind')
        for part, columns, one_hot in self._numbers:
            values = part.of(observations)
            if one_hot is not None:
                one_hot.write(values, vectors[:, columns])
                continue
            vectors[:, columns] = values.reshape(len(values), -1)
            if values.dtype == np.uint8:
                vectors[:, columns] *= np.float32(1 / 255)
        if number_error(vectors):
            for part, _, _ in self._numbers:
                part.checked(observations)
        return rows


class Actions:
    """Converts actions of ``space``: Discrete or MultiDiscrete [A] from 0, or Box [A].

    Raises:
        ValueError: the environment's space is of another kind, or has too many choices.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._original = space
        self._first: Any = 0
        self.space: Any
        if isinstance(space, spaces.Discrete):
            self._first = int(space.start)
            self.space = spaces.Discrete(int(space.n)) if self._first else space
        elif isinstance(space, spaces.MultiDiscrete):
            self._first = space.start
            plain = space.nvec.ndim == 1 and not space.start.any()
            self.space = space if plain else spaces.MultiDiscrete(space.nvec.ravel())
        elif isinstance(space, spaces.MultiBinary):
            self._first = np.zeros(space.shape, np.int64)
            self.space = spaces.MultiDiscrete(np.full(flatdim(space), 2))
        elif isinstance(space, spaces.Box) and space.dtype.kind == 'f':
            self.space = _native(space if len(space.shape) == 1 else spaces.Box(
                space.low.ravel(), space.high.ravel(), dtype=space.dtype.type))
        else:
            raise ValueError(f'actions: {space} is not supported: Discrete, MultiDiscrete, '
                             'MultiBinary, or a Box of floating-point numbers')
        if self.space.shape and not flatdim(self.space):
            raise ValueError(f'actions: {space} is not supported: it has no action')
        sizes = np.asarray(getattr(self.space, 'nvec', getattr(self.space, 'n', 0)), float)
        if sizes.sum() > _MAX_ACTIONS:
            raise ValueError(f'actions: {self.space} is not supported: at most {_MAX_ACTIONS} '
                             'choices, of all parts together')

    @property
    def first(self) -> NDArray[np.int64]:
        """The least number of each part of a discrete action in the environment, else [0]."""
        return np.atleast_1d(np.asarray(self._first, np.int64)).ravel()

    def convert(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return actions [B] or [B, A] of ``self.space`` as the environment takes them."""
        space = self._original
        if space is self.space:
            return actions
        actions = actions.reshape(len(actions), *(space.shape or ())) + self._first
        return actions.astype(space.dtype, copy=False)

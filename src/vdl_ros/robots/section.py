"""A mapping of a contract that is read key by key; each error names file, key and value."""

from __future__ import annotations

import math
import re
from typing import Any

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import suggestion
from vdl_ros.robots.contract import ContractError

__all__ = ['Section']

_MISSING: Any = object()


class Section:
    """Values by key; :meth:`end` refuses keys that nobody has read."""

    def __init__(self, file: str, place: str, value: object) -> None:
        """
        Take a mapping.

        Args:
            file: its name, for errors.
            place: key of the mapping in it, '' for the file itself.
            value: what should be a mapping.

        Raises:
            ContractError: it is none.
        """
        self._file, self._place = file, place
        if not isinstance(value, dict):
            raise ContractError(f'{file}: {place}: {quoted(value)} is not allowed: a mapping')
        self._values: dict[Any, Any] = value
        self._read: set[str] = set()

    def error(self, key: str, value: object, allowed: str) -> ContractError:
        """Return the error of a value that is not allowed; None: of a key that is missing."""
        place = self._place_of(key)
        if value is None:
            return ContractError(f'{self._file}: {place}: missing: {allowed}')
        return ContractError(
            f'{self._file}: {place}: {quoted(value)} is not allowed: {allowed}')

    def has(self, key: str) -> bool:
        """Return whether there is a value, other than null."""
        self._read.add(key)
        return self._values.get(key) is not None

    def text(
        self, key: str, default: str = _MISSING, choices: tuple[str, ...] = (), *,
        form: re.Pattern[str] | None = None, allowed: str = 'text',
    ) -> str:
        """Return a text, one of ``choices`` or of a form, if given."""
        if choices:
            allowed = 'one of ' + ', '.join(map(repr, choices))
        value = self._get(key, default, allowed)
        if value is default:
            return str(default)
        if not isinstance(value, str) or (choices and value not in choices) or (
                form is not None and not form.fullmatch(value)) or (
                not choices and not value):
            raise self.error(key, value, allowed + suggestion(str(value), choices))
        return value

    def number(
        self, key: str, default: float = _MISSING, low: float = -1e9, high: float = 1e9,
    ) -> float:
        """Return a finite number from ``low`` to ``high``."""
        allowed = f'a number from {low:g} to {high:g}'
        value = self._get(key, default, allowed)
        if value is default:
            return float(default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not (
                math.isfinite(value) and low <= value <= high):
            raise self.error(key, value, allowed)
        return float(value)

    def whole(
        self, key: str, default: int = _MISSING, low: int = 0, high: int = 1 << 31,
    ) -> int:
        """Return a whole number from ``low`` to ``high``."""
        allowed = f'a whole number from {low} to {high}'
        value = self._get(key, default, allowed)
        if value is default:
            return int(default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, value, allowed)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._get(key, default, 'true or false')
        if not isinstance(value, bool):
            raise self.error(key, value, 'true or false')
        return value

    def numbers(self, key: str, default: tuple[float, ...] = _MISSING) -> tuple[float, ...]:
        """Return a list of finite numbers."""
        value = self._get(key, default, 'a list of numbers')
        if value is default:
            return tuple(default)
        if not isinstance(value, list) or not all(
                isinstance(each, int | float) and not isinstance(each, bool)
                and math.isfinite(each) for each in value):
            raise self.error(key, value, 'a list of numbers')
        return tuple(map(float, value))

    def range(self) -> tuple[float, float]:
        """Return the numbers ``low`` and ``high``, ``low`` the smaller one."""
        low, high = self.number('low'), self.number('high')
        if low >= high:
            raise self.error('high', high, f'a number above low, {low:g}')
        return low, high

    def mapping(self, key: str) -> dict[str, Any]:
        """Return a mapping from texts to anything; empty if there is none."""
        value = self._get(key, {}, 'a mapping')
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value):
            raise self.error(key, value, 'a mapping')
        return dict(value)

    def section(self, key: str) -> Section:
        """Return the mapping under a key."""
        return Section(self._file, self._place_of(key), self._get(key, _MISSING, 'a mapping'))

    def sections(self, key: str) -> list[Section]:
        """Return the list of mappings under a key; empty if there is none."""
        value = self._get(key, [], 'a list of mappings')
        if not isinstance(value, list):
            raise self.error(key, value, 'a list of mappings')
        return [Section(self._file, f'{self._place_of(key)}[{index}]', each)
                for index, each in enumerate(value)]

    def named(self, key: str) -> dict[str, Section]:
        """Return the mappings under a key by name."""
        place = self._place_of(key)
        return {name: Section(self._file, f'{place}: {name}', each)
                for name, each in self.mapping(key).items()}

    def end(self) -> None:
        """
        Check that every key was read.

        Raises:
            ContractError: one was not.
        """
        for key in self._values:
            if key not in self._read:
                raise ContractError(f'{self._file}: {self._place_of(str(key)[:80])}: no such key'
                                    f'{suggestion(str(key), self._read)}')

    def _get(self, key: str, default: Any, allowed: str) -> Any:
        self._read.add(key)
        value = self._values.get(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise self.error(key, None, allowed)
        return default

    def _place_of(self, key: str) -> str:
        return ': '.join(filter(None, (self._place, key)))

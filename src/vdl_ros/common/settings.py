"""Settings as dataclass fields, each with default, description, range and unit.

One frozen dataclass holds the settings of a component. Its fields become ROS parameters
(``ros/parameters.py``), launch arguments (``ros/launch_arguments.py``), command-line options
(``local_training.py``) and the reference page in ``docs/``.
"""

import contextlib
import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from vdl_ros.common.quoting import quoted

T = TypeVar('T')
Scalar = bool | int | float | str
#: Names of earlier versions, which are accepted wherever a user or a saved run names a setting.
OLD_NAMES = {'max_policy_lag': 'max_in_flight', 'host': 'view_host', 'port': 'view_port'}


# What a user may type for true and false.
_WORDS = {'true': True, 'yes': True, 'on': True, '1': True,
          'false': False, 'no': False, 'off': False, '0': False}


class SettingError(ValueError):
    """An invalid setting; the message has its name, its value and the allowed values."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of a settings dataclass.

    ``minimum`` and ``maximum`` are inclusive. ``unit`` is SI or a noun ('s', 'steps'). ``word``
    may be said for the default.
    """

    name: str
    type: type[Scalar]
    default: Scalar
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ''
    word: str = ''

    @property
    def allowed(self) -> str:
        if self.choices:
            return 'one of ' + ', '.join(repr(choice) for choice in self.choices)
        kind = {bool: 'true or false', int: 'a whole number', float: 'a number', str: 'text'}
        text = (f'{self.word!r}, or ' if self.word else '') + kind[self.type]
        low, high = (None if each is None else str(int(each)) if self.type is int else f'{each:g}'
                     for each in (self.minimum, self.maximum))
        if low is not None and high is not None:
            return f'{text} from {low} to {high}'
        if low is not None:
            return f'{text}, at least {low}'
        return text if high is None else f'{text}, at most {high}'

    def check(self, value: object) -> Scalar:
        """Return ``value``, an int as float for a float; raise SettingError if not allowed."""
        if self.word and value == self.word:
            return self.default
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < 2**1023 else math.inf
        good = type(value) is self.type and (not self.choices or value in self.choices)
        if good and isinstance(value, (int, float)):
            low = -math.inf if self.minimum is None else self.minimum
            high = math.inf if self.maximum is None else self.maximum
            good = low <= value <= high and abs(value) < math.inf
        if not good:
            hint = suggestion(value, self.choices) if isinstance(value, str) else ''
            raise SettingError(
                f'{self.name}: {quoted(value)} is not allowed: {self.allowed}{hint}')
        return value  # type: ignore[return-value]

    def parse(self, text: str) -> Scalar:
        """Return the value of ``text``, as typed by a user; SettingError as of :meth:`check`."""
        value: Scalar = text
        if self.type is bool:
            value = _WORDS.get(text.strip().lower(), text)
        elif self.type is not str:
            with contextlib.suppress(ValueError):
                value = self.type(text)
        return self.check(value)


def current_name(name: str) -> str:
    """Return the name of today for a setting of an earlier version."""
    return OLD_NAMES.get(name, name)


def suggestion(word: str, among: Iterable[str]) -> str:
    """Return '; did you mean ...?' if ``word`` is similar to one of ``among``, else ''."""
    near = difflib.get_close_matches(word[:100], list(among), n=1)
    return f'; did you mean {near[0]!r}?' if near else ''


def setting(
    default: Any, doc: str, *, minimum: float | None = None, maximum: float | None = None,
    choices: tuple[str, ...] = (), unit: str = '', word: str = '',
) -> Any:
    """Return a dataclass field that is also a :class:`Setting`."""
    return dataclasses.field(default=default, metadata={
        'doc': doc, 'minimum': minimum, 'maximum': maximum, 'choices': choices, 'unit': unit,
        'word': word})


def settings_of(*classes: type) -> dict[str, Setting]:
    """Return the settings of dataclasses by name, in order of declaration.

    Classes may share a setting that they inherit from the same class.
    """
    found: dict[str, Setting] = {}
    declared: dict[str, Any] = {}
    for cls in classes:
        for field in dataclasses.fields(cls):
            if 'doc' not in field.metadata:
                continue
            if declared.setdefault(field.name, field) is not field:
                raise TypeError(f'{cls.__name__}.{field.name}: the name is already used')
            default: Any = field.default
            found[field.name] = Setting(field.name, type(default), default, **field.metadata)
    return found


def build(cls: type[T], values: Mapping[str, object]) -> T:
    """Return an instance of ``cls`` with ``values``, checked, and defaults for the rest."""
    known = settings_of(cls)
    for name in values:
        if name not in known:
            raise SettingError(f'{name}: no such setting{suggestion(name, known)}')
    return cls(**{name: known[name].check(value) for name, value in values.items()})


def as_dict(*instances: Any) -> dict[str, Scalar]:
    return {name: getattr(instance, name)
            for instance in instances for name in settings_of(type(instance))}


def as_text(value: Scalar) -> str:
    """Return a value as a user types it, which :meth:`Setting.parse` reads."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def select(cls: type[T], values: Mapping[str, object]) -> T:
    """Return an instance of ``cls`` with those of ``values`` that are its settings, checked."""
    known = settings_of(cls)
    return build(cls, {name: value for name, value in values.items() if name in known})


def describe(*classes: type) -> str:
    """Return one line for each setting: name, description, allowed values, default."""
    found = settings_of(*classes)
    width = max(map(len, found), default=0)
    return '\n'.join(
        f'  {name:<{width}}  {each.doc} {each.allowed[0].upper()}{each.allowed[1:]}'
        f'{" (" + each.unit + ")" if each.unit else ""}; default {each.default!r}.'
        for name, each in found.items())

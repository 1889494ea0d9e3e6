"""
Substitutions written in a text, as `$(var name)`, for parameter files that have them.

An argument of a substitution may be quoted and may have substitutions in it.  A backslash makes
the next character an ordinary one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from launch._unknown import ADVICE
from launch.substitution import Substitution
from launch.substitutions import (
    AllSubstitution,
    AndSubstitution,
    AnonName,
    AnySubstitution,
    Command,
    EnvironmentVariable,
    EqualsSubstitution,
    FileContent,
    FindExecutable,
    IfElseSubstitution,
    LaunchConfiguration,
    LaunchLogDir,
    NotEqualsSubstitution,
    NotSubstitution,
    OrSubstitution,
    PythonExpression,
    SubstitutionFailure,
    TextSubstitution,
    ThisLaunchFile,
    ThisLaunchFileDir,
)

from ..substitutions import (
    ExecutableInPackage,
    FindPackagePrefix,
    FindPackageShare,
    Parameter,
)

_NAME = re.compile('[A-Za-z][A-Za-z0-9_-]*')


def _with_default(make: Callable, keyword: str) -> Callable:
    def make_it(name: Any, *default: Any) -> Substitution:
        return make(name, **({keyword: default[0]} if default else {}))

    return make_it


_FACTORIES: dict[str, Callable[..., Substitution]] = {
    'all': AllSubstitution,
    'and': AndSubstitution,
    'anon': AnonName,
    'any': AnySubstitution,
    'command': _with_default(Command, 'on_stderr'),
    'dirname': ThisLaunchFileDir,
    'env': _with_default(EnvironmentVariable, 'default_value'),
    'equals': EqualsSubstitution,
    'eval': PythonExpression,
    'exec-in-pkg': ExecutableInPackage,
    'file-content': FileContent,
    'filename': ThisLaunchFile,
    'find-exec': lambda name: FindExecutable(name=name),
    'find-pkg-prefix': FindPackagePrefix,
    'find-pkg-share': FindPackageShare,
    'if': IfElseSubstitution,
    'launch_log_dir': LaunchLogDir,
    'log_dir': LaunchLogDir,
    'not': NotSubstitution,
    'not-equals': NotEqualsSubstitution,
    'or': OrSubstitution,
    'param': _with_default(Parameter, 'default'),
    'var': _with_default(LaunchConfiguration, 'default'),
}


def parse_substitution(text: str) -> list[Substitution]:
    """Turn a text into the substitutions in it and the texts between them."""
    return _Parser(text).parse_until('')


class _Parser:
    """A place in a text that moves forward while the text is parsed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse_until(self, ends: str) -> list[Substitution]:
        """Parse up to one of the characters, or to the end of the text."""
        parts: list[Substitution] = []
        plain = ''
        while self._at < len(self._text) and self._text[self._at] not in (ends or ()):
            if self._text.startswith('$(', self._at):
                if plain:
                    parts.append(TextSubstitution(text=plain))
                    plain = ''
                parts.append(self._parse_one())
                continue
            if self._text[self._at] == '\\' and self._at + 1 < len(self._text):
                self._at += 1
            plain += self._text[self._at]
            self._at += 1
        if plain or not parts:
            parts.append(TextSubstitution(text=plain))
        return parts

    def _parse_one(self) -> Substitution:
        begin = self._at
        match = _NAME.match(self._text, begin + 2)
        if match is None:
            raise SubstitutionFailure(f'no name after "$(": {self._text[begin:begin + 40]!r}')
        self._at = match.end()
        arguments = []
        while self._peek() == ' ':
            self._at += 1
            arguments.append(self._parse_argument())
        if self._peek() != ')':
            raise SubstitutionFailure(f'"$(" is not closed: {self._text[begin:begin + 40]!r}')
        self._at += 1
        if match[0] not in _FACTORIES:
            raise SubstitutionFailure(f'the substitution $({match[0]} ...) {ADVICE}')
        return _FACTORIES[match[0]](*arguments)

    def _parse_argument(self) -> list[Substitution]:
        quote = self._peek()
        if quote not in ('"', "'"):
            return self.parse_until(' )')
        self._at += 1
        argument = self.parse_until(quote)
        if self._peek() != quote:
            raise SubstitutionFailure(f'quote {quote} is not closed: {self._text[-40:]!r}')
        self._at += 1
        return argument

    def _peek(self) -> str:
        return self._text[self._at:self._at + 1]

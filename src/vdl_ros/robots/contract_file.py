"""Contracts of this host: their files, and what an include adds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.files import find_resource
from vdl_ros.common.quoting import quoted
from vdl_ros.common.schema import converted
from vdl_ros.common.settings import SettingError, suggestion
from vdl_ros.robots.contract import Contract, ContractError, Topic

_NAME = re.compile(r'[A-Za-z][A-Za-z0-9_]*')
_INCLUDED = re.compile(r'[A-Za-z0-9][A-Za-z0-9_-]*\.yaml')
# Included files in a row.
_MAX_INCLUDES = 8


def known_contracts(folder: str = '') -> dict[str, Path]:
    """Return this host's contracts by name: of the user's folder, and else of the package."""
    folders = [find_resource('config/robots')]
    if folder:
        if not Path(folder).is_dir():
            raise SettingError(f'robots: {folder!r} is not allowed: a folder of contracts')
        folders.append(Path(folder))
    return {path.stem: path for each in folders for path in sorted(each.glob('*.yaml'))
            if _NAME.fullmatch(path.stem)}


def find_contract(name: str) -> Contract:
    """Return a contract by its file, or by its name in this package; or ContractError."""
    if name.endswith('.yaml'):
        return read_contract(Path(name))
    known = known_contracts()
    if name not in known:
        raise ContractError(f'robot: {quoted(name)} is not allowed: FOLDER/NAME.yaml, or one of '
                            f'{", ".join(sorted(known))}{suggestion(name, known)}')
    return read_contract(known[name])


def read_contract(path: Path) -> Contract:
    """Return the contract in a file; or ContractError: file, key, value, what is allowed."""
    try:
        # After an include, whose keys a null takes away.
        content = _without_nulls(_content(path))
    except RecursionError:
        raise ContractError(f'{path.name}: a value contains itself') from None
    if isinstance(content.get('topics'), dict):
        # One by one, so that an error names the topic.
        content['topics'] = {
            key: converted(each, Topic, f'{path.name}: topics: {key}', ContractError)
            for key, each in content['topics'].items()}
    return converted(content | {'path': str(path)}, Contract, path.name, ContractError)


def _content(path: Path, depth: int = 0) -> dict[str, Any]:
    """Return the mapping in a file, its keys over those of the file that it includes."""
    try:
        found = yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise ContractError(f'{path} cannot be read: {error.strerror}') from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f'{path}: not YAML: {" ".join(str(error).split())[:200]}') from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ContractError(f'{path}: not a mapping from keys to values')
    if 'include' not in found:
        return found
    other = found.pop('include')
    if not isinstance(other, str) or not _INCLUDED.fullmatch(other) or depth == _MAX_INCLUDES:
        raise ContractError(f'{path.name}: include: {quoted(other)} is not allowed: a file of '
                            'the same folder, such as owi535.yaml, not itself')
    return _content(path.parent / other, depth + 1) | found


def _without_nulls(value: Any) -> Any:
    """Leave out what is null: it counts as missing, but for the user's own values."""
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: each if key in ('arguments', 'request') else _without_nulls(each)
            for key, each in value.items() if each is not None}

"""Files of contracts: where they are, what they include, and how they are read."""

import re
from pathlib import Path
from typing import Any

from vdl_ros.common.files import find_resource
from vdl_ros.common.plain_yaml import YamlError, read_yaml
from vdl_ros.common.quoting import quoted
from vdl_ros.common.schema import converted
from vdl_ros.common.settings import SettingError, suggestion
from vdl_ros.robots.contract import NAME, Contract, ContractError, Topic
from vdl_ros.robots.rosetta import expanded

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
            if re.fullmatch(NAME, path.stem)}


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
    # After an include, whose keys a null takes away.
    content = _without_nulls(_content(path))
    if isinstance(content.get('topics'), dict):
        # One by one, so that an error names the topic.
        content['topics'] = {
            key: converted(each, Topic, f'{path.name}: topics: {key}', ContractError)
            for key, each in content['topics'].items()}
    return converted(content | {'path': str(path)}, Contract, path.name, ContractError)


def _content(path: Path, depth: int = 0) -> dict[str, Any]:
    """Return the mapping in a file, its keys over those of the file that it includes."""
    try:
        found = read_yaml(path)
    except YamlError as error:
        raise ContractError(f'{path}: {error}') from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ContractError(f'{path}: not a mapping from keys to values')
    key = next((each for each in ('include', 'rosetta') if each in found), '')
    if not key:
        return found
    other = found.pop(key)
    if not isinstance(other, str) or not _INCLUDED.fullmatch(other) or depth == _MAX_INCLUDES:
        raise ContractError(f'{path.name}: {key}: {quoted(other)} is not allowed: a file of '
                            'the same folder, or of this package, such as owi535.yaml, not itself')
    content = _content(_included(path, other), depth + 1)
    if key == 'include':
        task, changed = content.get('task'), found.get('task')
        # Other arguments of the same task.
        if isinstance(task, dict) and isinstance(changed, dict) and 'function' not in changed:
            found['task'] = task | changed
        return content | found
    try:
        return expanded(content, found, other)
    except ValueError as error:
        raise ContractError(f'{path.name}: {error}') from None


def _included(path: Path, other: str) -> Path:
    """Return the file that another one includes: of its folder, or else of this package."""
    beside = path.parent / other
    return beside if beside.is_file() else find_resource('config/robots') / other


def lineage(name: str, folder: str = '') -> list[str]:
    """Return the name of a contract and of those that it includes, the nearest first."""
    names, path = [name], known_contracts(folder).get(name)
    while path is not None and len(names) <= _MAX_INCLUDES:
        try:
            content = read_yaml(path)
        except YamlError:
            break  # the environment says what is wrong
        other = content.get('include') if isinstance(content, dict) else None
        path = _included(path, other) if isinstance(other, str) and _INCLUDED.fullmatch(
            other) else None
        names += [path.stem] if path is not None else []
    return names


def _without_nulls(value: Any) -> Any:
    """Leave out what is null: it counts as missing, but for the user's own values."""
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: each if key in ('arguments', 'request') else _without_nulls(each)
            for key, each in value.items() if each is not None}

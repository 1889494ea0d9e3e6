"""Read states and actions of a LeRobotDataset v3; images are not read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.demonstrations.errors import DemonstrationError
from vdl_ros.export.writer import require_module

__all__ = ['INFO', 'LeRobotData', 'read_lerobot']

INFO = 'meta/info.json'
_VERSION = 'v3.'
_STATE, _ACTION, _EPISODE = 'observation.state', 'action', 'episode_index'
_LARGEST_INFO = 1 << 24


@dataclass(frozen=True)
class LeRobotData:
    """
    The rows of a data set.

    Attributes:
        robot: type of the robot.
        fps: rows per second.
        state_names, action_names: of the numbers; () if the data set does not name them.
        states: float32 [N, D].
        actions: float32 [N, A].
        episodes: number of each row's episode, int64 [N].
    """

    robot: str
    fps: float
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    states: NDArray[np.float32]
    actions: NDArray[np.float32]
    episodes: NDArray[np.int64]


def read_lerobot(folder: Path) -> LeRobotData:
    """
    Return the rows of the data set in a folder.

    Raises:
        DemonstrationError: not a data set of this version, or one with damaged files or without
            states or actions.
    """
    info = _info(folder)
    widths, names = {}, {}
    for feature in (_STATE, _ACTION):
        given = info['features'].get(feature)
        shape = given.get('shape') if isinstance(given, dict) else None
        if not (isinstance(shape, list) and len(shape) == 1 and isinstance(shape[0], int)
                and 0 < shape[0] <= 1 << 20):
            raise DemonstrationError(f'{folder}: no {feature} of one axis is in {INFO}')
        widths[feature] = shape[0]
        named = given.get('names')
        named = named if isinstance(named, list) and len(named) == shape[0] else []
        names[feature] = tuple(map(str, named))
    columns = _columns(folder, widths)
    return LeRobotData(
        str(info.get('robot_type', '')), float(info['fps']), names[_STATE], names[_ACTION],
        columns[_STATE], columns[_ACTION], columns[_EPISODE])


def _info(folder: Path) -> dict[str, Any]:
    path = folder / INFO
    try:
        if path.stat().st_size > _LARGEST_INFO:
            raise ValueError
        found = json.loads(path.read_text())
        good = (isinstance(found, dict) and isinstance(found['features'], dict)
                and str(found['codebase_version']).startswith(_VERSION)
                and 0.1 <= float(found['fps']) <= 1000.0)
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        good = False
    if not good:
        raise DemonstrationError(f'{path}: not that of a LeRobotDataset {_VERSION}0 with features '
                                 'and fps')
    return dict(found)


def _columns(folder: Path, widths: dict[str, int]) -> dict[str, NDArray[Any]]:
    arrow = require_module('pyarrow', 'pyarrow', 'lerobot')
    parquet = require_module('pyarrow.parquet', 'pyarrow', 'lerobot')
    files = sorted(folder.glob('data/*/*.parquet'))
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in (*widths, _EPISODE)}
    for file in files:
        try:
            table = parquet.read_table(file, columns=list(found))
            for name, parts in found.items():
                parts.append(_array(table[name], widths.get(name), len(table)))
        except (arrow.ArrowException, KeyError, OSError, TypeError, ValueError) as error:
            reason = ' '.join(str(error).split())[:200]
            raise DemonstrationError(f'{file} cannot be read: {quoted(reason)}') from None
    if not files or not sum(map(len, found[_EPISODE])):
        raise DemonstrationError(f'{folder}: no rows are in data/*/*.parquet')
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _array(column: Any, width: int | None, length: int) -> NDArray[Any]:
    """Return a column as an array; raise ValueError unless it has ``width`` numbers in a row."""
    if column.null_count:
        raise ValueError('rows without a value')
    if width is None:
        return np.asarray(column.to_numpy(), np.int64)
    if not hasattr(column.type, 'value_type'):
        raise ValueError(f'rows of {column.type} instead of lists of numbers')
    values = np.concatenate([
        np.zeros(0, np.float32),
        *(np.asarray(each.flatten().to_numpy(zero_copy_only=False), np.float32)
          for each in column.chunks)])
    if len(values) != length * width:
        raise ValueError(f'{len(values)} numbers in {length} rows of {width}')
    return values.reshape(length, width)

"""
What the file of a policy says of itself: JSON at the key ``vdl_ros`` of its metadata.

docs/arm_learning.md has the table of its values. Here is what a program that acts needs of them;
the rest is for people and other programs.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from vdl_ros.common.quoting import quoted
from vdl_ros.onnx_policy.file_check import OnnxFileError

__all__ = ['FORMAT', 'KEY', 'Input', 'PolicyMetadata', 'parse']

#: Of the JSON text in ``metadata_props``.
KEY = 'vdl_ros'
FORMAT = 1
_DTYPES = ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float32', 'float64')
_LONGEST = 1 << 24
# Numbers of an observation or a state.
_MOST_NUMBERS = 1 << 26


class Input(NamedTuple):
    """An observation, or a part of it, as an input of the graph: [B, *shape] of ``dtype``."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class PolicyMetadata:
    """
    The values that a program needs to act.

    Attributes:
        algorithm: its name.
        agent_steps: number of agent steps learned from.
        environment: settings of the environment that are not the default, and ``env_id``.
        description: what the environment said of itself; {} for most.
        inputs: of an observation: one, or ``image`` and ``numbers``.
        sizes: of discrete actions, the number of choices of each part; () for numbers.
        action_shape: of one action.
        state_size: S; 0 if the policy has no state.
        last_reward: index of the last reward in the state; None if it is not an input.
    """

    algorithm: str
    agent_steps: int
    environment: Mapping[str, Any]
    description: Mapping[str, Any]
    inputs: tuple[Input, ...]
    sizes: tuple[int, ...]
    action_shape: tuple[int, ...]
    state_size: int
    last_reward: int | None


def parse(text: str) -> PolicyMetadata:
    """
    Return the metadata of a file, which may come from anywhere.

    Raises:
        OnnxFileError: it is not that of a policy of this program.
    """
    if len(text) > _LONGEST:
        raise OnnxFileError(f'metadata {KEY}: longer than {_LONGEST} characters')
    try:
        found = json.loads(text)
        if found['format'] != FORMAT or type(found['format']) is not int:
            raise OnnxFileError(
                f'metadata {KEY}: format {quoted(found["format"])} is not {FORMAT}')
        action, state = found['action'], found['state'] or {}
        last = state.get('last_reward_index')
        sizes = tuple(_whole(each, 1) for each in _of(list, action['sizes']))
        shape = tuple(_whole(each) for each in _of(list, action['shape']))
        if sizes and shape != (len(sizes),) and (shape or len(sizes) > 1):
            raise ValueError(f'action: shape {shape} of {len(sizes)} sizes')
        return PolicyMetadata(
            _of(str, found['algorithm']), _whole(found['agent_steps']),
            _of(dict, found['environment']), _of(dict, found['description']),
            tuple(_input(each) for each in _of(list, found['observation']['inputs'])),
            sizes, shape, _whole(state['size'], 1, _MOST_NUMBERS) if state else 0,
            None if last is None else _whole(last))
    except OnnxFileError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f'{type(error).__name__}: {" ".join(str(error).split())[:80]}'
        raise OnnxFileError(f'metadata {KEY}: not that of a policy: {reason}') from None


def _input(found: Mapping[str, Any]) -> Input:
    shape, dtype = _of(list, found['shape']), found['dtype']
    if dtype not in _DTYPES:
        raise ValueError(f'dtype {quoted(dtype)}')
    sizes = tuple(_whole(each, 1, _MOST_NUMBERS) for each in shape)
    if math.prod(sizes) > _MOST_NUMBERS:
        raise ValueError(f'shape {sizes}')
    return Input(_of(str, found['name']), sizes, np.dtype(dtype).name)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f'{quoted(value, 40)} is no {kind.__name__}')
    return value


def _whole(value: Any, low: int = 0, high: int = 1 << 53) -> int:
    number: int = _of(int, value)
    if not low <= number <= high:
        raise ValueError(f'{quoted(value, 40)} is not allowed')
    return number

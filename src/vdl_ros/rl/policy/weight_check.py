"""Checks the weights in a message against those that a policy has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted

__all__ = ['ExpectedWeights', 'check_weights']

#: Dtype and shape by name.
ExpectedWeights = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]


def check_weights(expected: ExpectedWeights, arrays: Mapping[str, NDArray[Any]]) -> None:
    """
    Check names, dtypes and shapes, and that all numbers are finite.

    Raises:
        ValueError: the message names the array and the reason.
    """
    if expected.keys() != arrays.keys():
        names = quoted(sorted(expected.keys() ^ arrays.keys()))
        raise ValueError(f'weights: names {names} are missing or unknown')
    for name, (dtype, shape) in expected.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f'weights: {name}: {array.dtype} {array.shape} is not '
                             f'{dtype} {shape}')
        if dtype.kind == 'f' and not np.isfinite(array).all():
            raise ValueError(f'weights: {name}: not all finite')

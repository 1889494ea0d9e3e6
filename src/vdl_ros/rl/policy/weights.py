"""The weights of a policy as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.rl.device import to_host
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.policy.weight_check import check_weights

__all__ = ['load_weights', 'weights']


def weights(policy: Policy) -> Arrays:
    """Return the policy's parameters by name; of a policy on the CPU they share its memory."""
    return {name: tensor.numpy() for name, tensor in to_host(policy.state_dict()).items()}


def load_weights(policy: Policy, arrays: Mapping[str, NDArray[Any]]) -> None:
    """
    Copy parameters into ``policy``, which is on the CPU.

    Raises:
        ValueError: names, shapes or dtypes differ from this policy's, or not all are finite.
    """
    state = {name: tensor.numpy() for name, tensor in policy.state_dict().items()}
    check_weights({name: (each.dtype, each.shape) for name, each in state.items()}, arrays)
    with torch.no_grad():
        for name, each in state.items():
            np.copyto(each, arrays[name])

"""The precision of a policy's torso: float32, or bfloat16 where the device is faster with it."""

from __future__ import annotations

import torch

from vdl_ros.common.precision import faster_in_bfloat16
from vdl_ros.rl.device import CPU, computes_bfloat16
from vdl_ros.rl.policy.policy import Policy

__all__ = ['choose_precision']

# Batch size of the measurement that chooses the precision.
_PRECISION_BATCH = 16


def choose_precision(policy: Policy, precision: str) -> None:
    """
    Set the precision of a policy's torso for the device that it is on.

    Args:
        policy: on its device.
        precision: 'float32', 'bfloat16', or 'auto': on a CPU the faster one, on a CUDA device
            bfloat16 if the hardware supports it. It has the exponent range of float32, so
            gradients need no scaling. Without images the precision is always float32.
    """
    if precision == 'auto' and policy.of_images:
        precision = 'bfloat16' if _faster_in_bfloat16(policy) else 'float32'
    policy.precision = (
        torch.bfloat16 if precision == 'bfloat16' and policy.of_images else torch.float32)


def _faster_in_bfloat16(policy: Policy) -> bool:
    device = policy.policy_head.weight.device
    if device != CPU:
        return computes_bfloat16(device)
    # Random images would change the random state of the run.
    images = torch.full((_PRECISION_BATCH, *policy.image_shape), 0.5)
    with torch.no_grad():
        return faster_in_bfloat16(lambda: policy.policy_torso(images))

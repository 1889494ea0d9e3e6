"""The learner's device, and copies of tensors between it and the host; all CUDA code is here.

With CUDA, the host queues work on streams and continues; each ``item()``, ``tolist()`` or copy to
the host waits for all work queued before. A copy is asynchronous only if the host memory is pinned
and both sides are contiguous. Pinned memory that is freed is not reused before copies from it are
done: PyTorch's allocator records an event after each copy.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from vdl_ros.common.settings import SettingError

CPU = torch.device('cpu')
# Smallest compute capability with bfloat16 hardware; older GPUs emulate it, which is slower.
_BFLOAT16_CAPABILITY = 8


def choose_device(name: str, rank: int = 0) -> torch.device:
    """Return the device for the setting ``device``: 'auto', 'cpu' or 'cuda'.

    Learners of one host use its devices in turn, by their ranks.
    """
    count = torch.cuda.device_count() if name != 'cpu' and torch.cuda.is_available() else 0
    if count:
        return torch.device('cuda', rank % count)
    if name == 'cuda':
        raise SettingError("device: 'cuda' is not allowed: PyTorch finds no CUDA device here; "
                           "'auto' or 'cpu'")
    return CPU


def describe(device: torch.device) -> str:
    return str(torch.cuda.get_device_name(device)) if device.type == 'cuda' else 'cpu'


def computes_bfloat16(device: torch.device) -> bool:
    """Return whether a device other than the CPU has bfloat16 hardware."""
    return device.type == 'cuda' and \
        torch.cuda.get_device_capability(device)[0] >= _BFLOAT16_CAPABILITY


def nccl_identity(device: torch.device) -> str:
    """Return a unique identifier of this device, or '' if NCCL cannot use it.

    The host name is not part of it: two containers may share a GPU but differ in host name.
    """
    if device.type != 'cuda' or not dist.is_nccl_available():
        return ''
    # Available since PyTorch 2.4.
    return str(getattr(torch.cuda.get_device_properties(device), 'uuid', ''))


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of ``device`` or the host on ``device``, by an asynchronous copy if any."""
    if tensor.device == device:
        return tensor
    # Pinned memory belongs to the current device.
    with torch.cuda.device(device):
        return tensor.pin_memory().to(device, non_blocking=True)


def gather(table: Tensor, index: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return ``table[index]`` on ``device``, by one copy in host memory and an asynchronous one.

    Table, contiguous, and index, int64 [N] each: rows, or rows and columns, are in host memory.
    """
    rows = index[0]
    if len(index) > 1:
        rows, table = rows * table.shape[1] + index[1], table.flatten(0, 1)
    if device == CPU:
        # Of large rows this takes a sixth of the time of table[index].
        return table.index_select(0, rows)
    with torch.cuda.device(device):
        found = torch.empty((len(rows), *table.shape[1:]), dtype=table.dtype, pin_memory=True)
        torch.index_select(table, 0, rows, out=found)
        return found.to(device, non_blocking=True)


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors of one device to host memory; wait once for all of them."""
    device = next(iter(tensors.values())).device
    if device == CPU:
        return dict(tensors)
    with torch.cuda.device(device):
        copies = {name: torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                  for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            copies[name].copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(device).synchronize()
    return copies

"""
What a learner computes on, and how its tensors get there and back: all that is CUDA's own.

With CUDA, the host queues work on streams and goes on; each ``item()``, ``tolist()`` or copy back
makes it wait for all that is queued before. A copy is asynchronous in truth only if the host's
side of it is pinned memory and neither side has to be rearranged first. Pinned memory that is
let go of is not given out again before the copies from it are done: PyTorch's allocator notes an
event behind each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from vdl_ros.common.settings import SettingError

__all__ = [
    'CPU', 'DeviceMemory', 'HostMemory', 'choose_device', 'computes_bfloat16', 'describe',
    'gather', 'memory_of', 'nccl_identity', 'send', 'to_host',
]

CPU = torch.device('cpu')
# The first generation of GPUs with units for bfloat16; older ones emulate it, which is slower.
_BFLOAT16_SINCE = 8


def choose_device(name: str, rank: int = 0) -> torch.device:
    """
    Return the device that the setting ``device`` asks for.

    Args:
        name: 'auto', 'cpu' or 'cuda'.
        rank: of the learner; those of one host take its devices in turn.

    Raises:
        SettingError: CUDA is asked for, and PyTorch finds no device.
    """
    count = torch.cuda.device_count() if name != 'cpu' and torch.cuda.is_available() else 0
    if count:
        return torch.device('cuda', rank % count)
    if name == 'cuda':
        raise SettingError("device: 'cuda' is not allowed: PyTorch finds no CUDA device here; "
                           "'auto' or 'cpu'")
    return CPU


def describe(device: torch.device) -> str:
    """Return 'cpu', or the name of the GPU."""
    return str(torch.cuda.get_device_name(device)) if device.type == 'cuda' else 'cpu'


def computes_bfloat16(device: torch.device) -> bool:
    """Return whether a device that is not the CPU has units for bfloat16."""
    return device.type == 'cuda' and \
        torch.cuda.get_device_capability(device)[0] >= _BFLOAT16_SINCE


def nccl_identity(device: torch.device) -> str:
    """
    Return what tells this device from every other one of any host, or '' if NCCL cannot use it.

    The name of the host is no part of it: two containers share a GPU, but not their name.
    """
    if device.type != 'cuda' or not dist.is_nccl_available():
        return ''
    # PyTorch knows it since 2.4.
    return str(getattr(torch.cuda.get_device_properties(device), 'uuid', ''))


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """
    Return a tensor on ``device``: itself if it is there, else a copy, which nobody waits for.

    Args:
        tensor: on that device, or in host memory.
        device: where it is used, by the work that is queued next.
    """
    if tensor.device == device:
        return tensor
    # Pinned memory belongs to the current device: not to the first one, if this is another.
    with torch.cuda.device(device):
        return tensor.pin_memory().to(device, non_blocking=True)


def gather(table: Tensor, index: Sequence[Tensor], device: torch.device) -> Tensor:
    """
    Return ``table[index]`` on ``device``, copied once in host memory; nobody waits for more.

    Args:
        table: [R, ...] or [R, S, ...], contiguous, in host memory.
        index: int64 [N] in host memory: rows, or rows and columns, one of each.
        device: where it is used.
    """
    if device == CPU:
        return table[tuple(index)]
    rows = index[0]
    if len(index) > 1:
        rows, table = rows * table.shape[1] + index[1], table.flatten(0, 1)
    with torch.cuda.device(device):
        found = torch.empty((len(rows), *table.shape[1:]), dtype=table.dtype, pin_memory=True)
        torch.index_select(table, 0, rows, out=found)
        return found.to(device, non_blocking=True)


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of one device in host memory: all are copied, then waited for once."""
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


class HostMemory:
    """Where batches are put together; what is learned from in host memory stays as it is."""

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Tensor:
        """Return a tensor [T, B, ...] to be filled with columns."""
        return torch.from_numpy(np.empty(shape, dtype))

    def columns(self, whole: Tensor, start: int, stop: int) -> Tensor:
        """Return [T, stop - start, ...] in host memory, to be written to and then :meth:`put`."""
        return whole[:, start:stop]

    def put(self, whole: Tensor, start: int, columns: Tensor) -> None:
        """Make ``columns``, which are not written to any more, those of ``whole``."""

    def take(self, array: NDArray[np.generic]) -> Tensor:
        """Return an array as a tensor."""
        return torch.from_numpy(array)

    def settle(self, tensors: Sequence[Tensor]) -> None:
        """Let the work that is queued next use ``tensors``, which were made here."""


class DeviceMemory(HostMemory):
    """
    The memory of a CUDA device, filled by a stream of its own.

    So a copy goes on while the host prepares the next one, and the device computes. Columns of a
    time-major tensor are not contiguous: they go over as a tensor of their own, which is, and the
    device puts them in their place.
    """

    def __init__(self, device: torch.device) -> None:
        """Fill the memory of ``device``."""
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Tensor:
        """See :meth:`HostMemory.empty`."""
        with torch.cuda.stream(self._stream):
            return torch.empty(tuple(shape), dtype=_torch(dtype), device=self._device)

    def columns(self, whole: Tensor, start: int, stop: int) -> Tensor:
        """See :meth:`HostMemory.columns`."""
        with torch.cuda.device(self._device):
            return torch.empty((len(whole), stop - start, *whole.shape[2:]), dtype=whole.dtype,
                               pin_memory=True)

    def put(self, whole: Tensor, start: int, columns: Tensor) -> None:
        """See :meth:`HostMemory.put`; the copy begins now."""
        with torch.cuda.stream(self._stream):
            there = columns.to(self._device, non_blocking=True)
            whole[:, start:start + columns.shape[1]].copy_(there)

    def take(self, array: NDArray[np.generic]) -> Tensor:
        """See :meth:`HostMemory.take`."""
        with torch.cuda.stream(self._stream):
            return torch.from_numpy(array).pin_memory().to(self._device, non_blocking=True)

    def settle(self, tensors: Sequence[Tensor]) -> None:
        """See :meth:`HostMemory.settle`; only the device waits."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for tensor in tensors:
            # Its memory is this class's stream's, which might else fill it anew once it is let
            # go of, while it is still being computed with.
            tensor.record_stream(computing)


def memory_of(device: torch.device) -> HostMemory:
    """Return the memory that ``device`` computes in."""
    return HostMemory() if device == CPU else DeviceMemory(device)


def _torch(dtype: DTypeLike) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype

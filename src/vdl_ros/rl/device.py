"""The learner's device, and copies of tensors between it and the host; all CUDA code is here.

With CUDA, the host queues work on streams and continues; each ``item()``, ``tolist()`` or copy to
the host waits for all work queued before. A copy is asynchronous only if the host memory is pinned
and both sides are contiguous. Pinned memory that is freed is not reused before copies from it are
done: PyTorch's allocator records an event after each copy.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import DTypeLike, NDArray
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


class HostMemory:
    """Memory in which batches are assembled: that of the host, without further copies."""

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Tensor:
        """Return an empty tensor [T, B, ...] to fill with columns."""
        return torch.from_numpy(np.empty(shape, dtype))

    def columns(self, whole: Tensor, start: int, stop: int) -> Tensor:
        """Return [T, stop - start, ...] in host memory to write to; then call :meth:`put`."""
        return whole[:, start:stop]

    def put(self, whole: Tensor, start: int, columns: Tensor) -> None:
        """Copy ``columns``, which must no longer change, into ``whole``."""

    def take(self, array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array)

    def wait_for_copies(self, tensors: Sequence[Tensor]) -> None:
        """Make the work that is queued next wait until ``tensors`` are copied."""


class DeviceMemory(HostMemory):
    """The memory of a CUDA device, filled by a separate stream.

    Copies overlap with the host's work and with computation. Columns of a time-major tensor are
    not contiguous: they are copied as a contiguous tensor, which the device copies into place.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> Tensor:
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        with torch.cuda.stream(self._stream):
            return torch.empty(tuple(shape), dtype=kind, device=self._device)

    def columns(self, whole: Tensor, start: int, stop: int) -> Tensor:
        with torch.cuda.device(self._device):
            return torch.empty((len(whole), stop - start, *whole.shape[2:]), dtype=whole.dtype,
                               pin_memory=True)

    def put(self, whole: Tensor, start: int, columns: Tensor) -> None:
        with torch.cuda.stream(self._stream):
            there = columns.to(self._device, non_blocking=True)
            whole[:, start:start + columns.shape[1]].copy_(there)

    def take(self, array: NDArray[np.generic]) -> Tensor:
        with torch.cuda.stream(self._stream):
            return torch.from_numpy(array).pin_memory().to(self._device, non_blocking=True)

    def wait_for_copies(self, tensors: Sequence[Tensor]) -> None:
        """Let the device wait; this thread goes on."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for tensor in tensors:
            # Otherwise this class's stream could reuse the memory of a freed tensor while
            # computation with it goes on.
            tensor.record_stream(computing)


def memory_of(device: torch.device) -> HostMemory:
    return HostMemory() if device == CPU else DeviceMemory(device)

"""The process group of several learners: ``torch.distributed`` over Gloo, and NCCL between GPUs.

Gloo reduces tensors in host memory. NCCL reduces tensors on GPUs if each learner has its own GPU,
because NCCL refuses two processes on one; else they go through host memory.

Learner 0 listens at an address and the others connect to it (``TCPStore``); when all have arrived,
each connects to each. All must call the same operations in the same order. Groups are not
repaired: when a learner leaves, dies or is silent for ``timeout`` seconds, the others raise
:class:`GroupError`, leave, and join a new group. NCCL only queues an operation: if it fails,
PyTorch's watchdog ends the process, and the launch starts it again. Nothing is pickled.
"""

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.device import CPU, nccl_identity
from vdl_ros.rl.distributed.collectives import Group, GroupError, MissingError
from vdl_ros.rl.runs.run_config import host_and_port

T = TypeVar('T')

# Period of polling for the others, s.
_POLL_S = 0.05
# Timeout of one attempt to connect to learner 0, s: an interrupt takes effect after it.
_CONNECT_S = 0.5
# Timeout of operations of a connected store, s: torch looks up host names, which takes long if
# the name server is out of reach.
_STORE_S = 30.0
# Read by torch.distributed: the network interface that Gloo listens on.
_INTERFACE = 'GLOO_SOCKET_IFNAME'
# Public, but missing from torch's type declarations.
_TCPStore: Callable[..., Store] = dist.TCPStore  # type: ignore[attr-defined]


class ProcessGroup(Group):
    """The group of several learners, each a process; see :func:`join`.

    Each operation raises a GroupError if another learner is gone or silent for ``timeout`` s.
    """

    def __init__(
        self, store: Store, rank: int, size: int, timeout: float, device: torch.device = CPU,
    ) -> None:
        self.rank, self.size, self._timeout = rank, size, timeout
        # The store of learner 0 serves the others for as long as it is held.
        self._store: Store | None = store
        self.uses_nccl = self._together('the devices of all learners', lambda: _agree_on_nccl(
            store, rank, size, nccl_identity(device)))
        backend = 'cpu:gloo,cuda:nccl' if self.uses_nccl else 'gloo'
        self._together('the connection of all learners', lambda: dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout)))

    def all_reduce_sum(self, numbers: Tensor) -> Tensor:
        """See :class:`Group`; the result is bit-identical on all learners."""
        total = self._movable(numbers.detach(), copy=True)
        self._together('a sum', lambda: dist.all_reduce(total))
        return total.to(numbers.device)

    def all_reduce_min(self, number: int) -> int:
        smallest = torch.tensor(number)
        self._together('a minimum', lambda: dist.all_reduce(smallest, dist.ReduceOp.MIN))
        return int(smallest)

    def all_reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        """See :class:`Group`; all are reduced as one tensor."""
        gradients = [each.grad for each in parameters if each.grad is not None]
        flat = self._movable(torch.cat([gradient.flatten() for gradient in gradients]))
        self._together('the sum of gradients', lambda: dist.all_reduce(flat))
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def broadcast(self, data: bytes) -> bytes:
        length = torch.tensor(len(data))
        self._together('a broadcast', lambda: dist.broadcast(length, 0))
        found = _to_tensor(data, int(length)) if self.rank == 0 else _to_tensor(b'', int(length))
        self._together('a broadcast', lambda: dist.broadcast(found, 0))
        return found.numpy().tobytes()

    def all_gather(self, text: str) -> list[str]:
        data = text.encode()
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(data)
        lengths = self.all_reduce_sum(lengths)
        longest = int(lengths.max())
        mine = _to_tensor(data, longest)
        found = [torch.empty_like(mine) for _ in range(self.size)]
        self._together('the reports of all learners', lambda: dist.all_gather(found, mine))
        return [each[:length].numpy().tobytes().decode()
                for each, length in zip(found, lengths.tolist(), strict=True)]

    def close(self) -> None:
        """Leave the group; learners that wait for this one get an error."""
        self._store = None
        if dist.is_initialized():
            dist.destroy_process_group()

    def _movable(self, numbers: Tensor, *, copy: bool = False) -> Tensor:
        """Return numbers in memory that the backend can reduce."""
        nccl = self.uses_nccl and numbers.is_cuda
        return numbers.to(numbers.device if nccl else CPU, copy=copy)

    def _together(self, what: str, do: Callable[[], T]) -> T:
        others = _named([rank for rank in range(self.size) if rank != self.rank])
        since = time.monotonic()
        try:
            return do()
        except RuntimeError as error:
            if time.monotonic() - since >= self._timeout:
                reason = f'nothing came within group_timeout, {self._timeout:g} s'
            else:
                # Without the position in Gloo's source and its advice.
                reason = str(error).partition('] ')[2].partition('. ')[0] or str(error)
                reason = ' '.join(reason.split())[:200]
            raise GroupError(f'learner {self.rank} waited for {what} with {others}: {reason}'
                             ) from None


def join(
    rank: int, size: int, address: str, timeout: float, *,
    stop: threading.Event | None = None, device: torch.device = CPU,
) -> ProcessGroup | None:
    """Join the group of the other learners; return it, or None if ``stop`` was set.

    Learner 0 listens at ``address``, 'host:port'; ``timeout`` is the longest wait for the others,
    here and later, s.

    Raises:
        MissingError: not all arrived in time.
        GroupError: learner 0 does not answer, or one is gone while they connect.
        SettingError: an address that cannot be listened at; another number of learners.
    """
    stop = stop or threading.Event()
    groups: list[ProcessGroup | None] = []
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            groups.append(_join(rank, size, address, timeout, stop, device))
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)

    # A store whose process is stopped never answers, and torch waits for its answers for ever.
    thread = threading.Thread(target=attempt, name='join', daemon=True)
    thread.start()
    # To meet and to connect may each take the timeout.
    deadline = time.monotonic() + 2.0 * timeout + _CONNECT_S
    while thread.is_alive() and time.monotonic() < deadline and not stop.is_set():
        thread.join(_POLL_S)
    thread.join(2.0 * _CONNECT_S)
    if errors:
        raise errors[0]
    if groups:
        return groups[0]
    if stop.is_set():
        return None
    raise GroupError(f'learner {rank} waited at group_address {address}: '
                     f'{_named([0] if rank else range(1, size))} did not answer within '
                     f'group_timeout, {timeout:g} s')


def _join(
    rank: int, size: int, address: str, timeout: float, stop: threading.Event,
    device: torch.device,
) -> ProcessGroup | None:
    """See :func:`join`; may take for ever."""
    host, port = host_and_port(address)
    deadline = time.monotonic() + timeout
    local_address = _local_address(host, port, address)
    missing = [0] if rank else list(range(1, size))
    while time.monotonic() < deadline and not stop.is_set():
        store = _listen(host, port, address) if rank == 0 else _reach(host, port)
        if store is None:
            stop.wait(_POLL_S)
            continue
        try:
            missing = _meet(store, rank, size, deadline, stop)
        except (dist.DistError, RuntimeError):
            # Learner 0 is gone; another one will be started.
            missing = [0]
            continue
        if not missing:
            os.environ.setdefault(_INTERFACE, _interface(local_address))
            return ProcessGroup(store, rank, size, timeout, device)
        # The store of an earlier group, or time is up.
        del store
        stop.wait(_POLL_S)
    if stop.is_set():
        return None
    raise MissingError(f'learner {rank} waited at group_address {address}: {_named(missing)} did '
                       f'not come within group_timeout, {timeout:g} s')


def _agree_on_nccl(store: Store, rank: int, size: int, identity: str) -> bool:
    """Return whether all learners use NCCL, the same value on each, by :func:`nccl_identity`."""
    store.set(f'device/{rank}', identity)
    found = [store.get(f'device/{each}') for each in range(size)]
    return all(found) and len(set(found)) == size


def _meet(store: Store, rank: int, size: int, deadline: float, stop: threading.Event) -> list[int]:
    """Return the ranks of the missing learners: none, or those missing at the deadline."""
    if rank == 0:
        store.set('size', str(size))
    while not store.check(['size']):  # the store opens a moment before its size is set
        if time.monotonic() > deadline or stop.wait(_POLL_S):
            return [0]
    counted = int(store.get('size'))
    if counted != size:
        raise SettingError(f'num_learners: {size} is not allowed: learner 0 counts {counted}')
    # An earlier process took this rank: it is dead, and so is the group of this store.
    if store.add(f'arrived/{rank}', 1) != 1:
        return [0]
    while True:
        missing = [each for each in range(size) if not store.check([f'arrived/{each}'])]
        if not missing or time.monotonic() > deadline or stop.is_set():
            return missing
        stop.wait(_POLL_S)


def _listen(host: str, port: int, address: str) -> Store | None:
    """Return the store of a new group, or None while another process has the port."""
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:  # perhaps by a process that is about to end
            return None
        raise SettingError(f'group_address: learner 0 cannot listen at {address!r}: '
                           f'{error.strerror}') from None
    # The store now owns the socket, which listens at this address only.
    return _TCPStore(host, port, is_master=True, wait_for_workers=False,
                     timeout=timedelta(seconds=_STORE_S), master_listen_fd=listener.detach())


def _reach(host: str, port: int) -> Store | None:
    """Return learner 0's store, or None while it is not there."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
        return _TCPStore(host, port, is_master=False, wait_for_workers=False,
                         timeout=timedelta(seconds=_STORE_S))
    except (OSError, RuntimeError):
        return None


def _local_address(host: str, port: int, address: str) -> str:
    """Return the address of this host on the route to learner 0."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SettingError(f'group_address: {address!r}: {error.strerror}') from None


def _interface(address: str) -> str:
    return next((name for name, addresses in psutil.net_if_addrs().items()
                 if address in [each.address for each in addresses]), '')


def _to_tensor(data: bytes, length: int) -> Tensor:
    """Return bytes as uint8 [length], padded with zeros."""
    return torch.frombuffer(bytearray(data.ljust(length, b'\0')), dtype=torch.uint8)


def _named(ranks: Sequence[int]) -> str:
    return f'learner{"s" if len(ranks) > 1 else ""} {", ".join(map(str, ranks))}'

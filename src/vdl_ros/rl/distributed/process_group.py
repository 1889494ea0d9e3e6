"""
Several learners, each a process, as one: ``torch.distributed`` over Gloo, and NCCL between GPUs.

What is in host memory is summed by Gloo, always. What is on a GPU is summed by NCCL where each
learner has one of its own, since NCCL refuses two on the same; else it goes through host memory.

The first learner listens at an address, the others come to it (``TCPStore``); when all are there,
each is connected to each. All must ask for the same sums in the same order. Who leaves, dies or
is silent for ``timeout`` seconds is an error of all the others: a group is never mended, but left
by all, who then meet again in a new one. NCCL only queues a sum: if it fails, PyTorch's watchdog
ends the process, and its launch starts it again. Nothing is pickled.
"""

from __future__ import annotations

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
from vdl_ros.rl.distributed.collectives import Group, GroupError
from vdl_ros.rl.runs.run_config import host_and_port

__all__ = ['LearnerGroup', 'agree_on_nccl', 'join']

T = TypeVar('T')

# From one look for the others to the next, s.
_LOOK_S = 0.05
# One try to reach the first learner, s; a person who interrupts waits no longer.
_TRY_S = 0.5
# Longest talk with a store that is there, s: torch asks for names of addresses, and a name server
# that is out of reach is waited for.
_TALK_S = 30.0
# torch.distributed's own choice of the interface that Gloo listens on.
_INTERFACE = 'GLOO_SOCKET_IFNAME'
# Public, but not in what torch declares to export.
_TCPStore: Callable[..., Store] = dist.TCPStore  # type: ignore[attr-defined]


class LearnerGroup(Group):
    """
    One of several learners that have met; see :func:`join`.

    Attributes:
        uses_nccl: for what is on GPUs.
    """

    def __init__(
        self, store: Store, rank: int, size: int, timeout: float, device: torch.device = CPU,
    ) -> None:
        """
        Connect to the others, who all must be there.

        Args:
            store: where all have met.
            rank: which one this is.
            size: how many there are.
            timeout: longest wait for the others in a sum, s.
            device: what this learner computes on.

        Raises:
            GroupError: another one is gone.
        """
        self.rank, self.size, self._timeout = rank, size, timeout
        # The first learner's store serves the others for as long as it is held.
        self._store: Store | None = store
        self.uses_nccl = self._together('the devices of all learners', lambda: agree_on_nccl(
            store, rank, size, nccl_identity(device)))
        backend = 'cpu:gloo,cuda:nccl' if self.uses_nccl else 'gloo'
        self._together('the connection of all learners', lambda: dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout)))

    def sum(self, numbers: Tensor) -> Tensor:
        """
        See :meth:`Group.sum`; the same on all learners, to the bit.

        Raises:
            GroupError: another learner is gone or silent; so do all that follow.
        """
        total = self._movable(numbers.detach(), copy=True)
        self._together('a sum', lambda: dist.all_reduce(total))
        return total.to(numbers.device)

    def least(self, number: int) -> int:
        """See :meth:`Group.least`."""
        least = torch.tensor(number)
        self._together('a minimum', lambda: dist.all_reduce(least, dist.ReduceOp.MIN))
        return int(least)

    def add_gradients(self, parameters: Sequence[Tensor]) -> None:
        """See :meth:`Group.add_gradients`; all travel as one tensor."""
        gradients = [each.grad for each in parameters if each.grad is not None]
        flat = self._movable(torch.cat([gradient.flatten() for gradient in gradients]))
        self._together('the sum of gradients', lambda: dist.all_reduce(flat))
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def broadcast(self, data: bytes) -> bytes:
        """See :meth:`Group.broadcast`."""
        length = torch.tensor(len(data))
        self._together('the first learner', lambda: dist.broadcast(length, 0))
        found = _to_tensor(data, int(length)) if self.rank == 0 else _to_tensor(b'', int(length))
        self._together('the first learner', lambda: dist.broadcast(found, 0))
        return found.numpy().tobytes()

    def gather(self, text: str) -> list[str]:
        """See :meth:`Group.gather`."""
        data = text.encode()
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(data)
        lengths = self.sum(lengths)
        longest = int(lengths.max())
        own = _to_tensor(data, longest)
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._together('what all learners tell', lambda: dist.all_gather(found, own))
        return [each[:length].numpy().tobytes().decode()
                for each, length in zip(found, lengths.tolist(), strict=True)]

    def close(self) -> None:
        """Leave the others; who still waits for this one hears of it."""
        self._store = None
        if dist.is_initialized():
            dist.destroy_process_group()

    def _movable(self, numbers: Tensor, *, copy: bool = False) -> Tensor:
        """Return numbers where they can go to the others from."""
        nccl = self.uses_nccl and numbers.is_cuda
        return numbers.to(numbers.device if nccl else CPU, copy=copy)

    def _together(self, what: str, do: Callable[[], T]) -> T:
        """
        Do something that all must do at the same time, and return what comes of it.

        Raises:
            GroupError: names whom it waited for, for what, and how long.
        """
        others = _named([rank for rank in range(self.size) if rank != self.rank])
        since = time.monotonic()
        try:
            return do()
        except RuntimeError as error:
            if time.monotonic() - since >= self._timeout:
                reason = f'nothing came within group_timeout, {self._timeout:g} s'
            else:
                # Without where in Gloo's source it was, and its advice.
                reason = str(error).partition('] ')[2].partition('. ')[0] or str(error)
                reason = ' '.join(reason.split())[:200]
            raise GroupError(f'learner {self.rank} waited for {what} with {others}: {reason}'
                             ) from None


def join(
    rank: int, size: int, address: str, timeout: float, *,
    stop: threading.Event | None = None, device: torch.device = CPU,
) -> LearnerGroup | None:
    """
    Meet the other learners.

    Args:
        rank: which one this is; 0 listens at ``address``.
        size: how many there are.
        address: 'host:port', the same for all.
        timeout: longest wait for the others, here and later, s.
        stop: give up once it is set.
        device: see :class:`LearnerGroup`.

    Returns:
        The group, or None if ``stop`` was set.

    Raises:
        GroupError: not all came in time.
        SettingError: an address at which nobody can listen; another number of learners.
    """
    host, port = host_and_port(address)
    stop = stop or threading.Event()
    deadline = time.monotonic() + timeout
    own = _own_address(host, port, address)
    missing = [0] if rank else list(range(1, size))
    while time.monotonic() < deadline and not stop.is_set():
        store = _listen(host, port, address) if rank == 0 else _reach(host, port)
        if store is None:
            stop.wait(_LOOK_S)
            continue
        try:
            missing = _meet(store, rank, size, deadline, stop)
        except (dist.DistError, RuntimeError):
            # The first learner went away meanwhile: another one will come.
            missing = [0]
            continue
        if not missing:
            os.environ.setdefault(_INTERFACE, _interface(own))
            return LearnerGroup(store, rank, size, timeout, device)
        # This store is of a group that is over, if it is not simply too late.
        del store
        stop.wait(_LOOK_S)
    if stop.is_set():
        return None
    raise GroupError(f'learner {rank} waited at group_address {address}: {_named(missing)} did '
                     f'not come within group_timeout, {timeout:g} s')


def agree_on_nccl(store: Store, rank: int, size: int, identity: str) -> bool:
    """
    Return whether all learners use NCCL, the same for all; each calls it once.

    Args:
        store: where all have met.
        rank: which one this is.
        size: how many there are.
        identity: of its device, see :func:`nccl_identity`.

    Raises:
        RuntimeError: another one is gone.
    """
    store.set(f'device/{rank}', identity)
    found = [store.get(f'device/{each}') for each in range(size)]
    return all(found) and len(set(found)) == size


def _meet(
    store: Store, rank: int, size: int, deadline: float, stop: threading.Event,
) -> list[int]:
    """
    Return who is missing: nobody, or once it is time to give up.

    Raises:
        RuntimeError: the first learner went away.
        SettingError: it counts another number of learners.
    """
    if rank == 0:
        store.set('size', str(size))
    while not store.check(['size']):  # the first learner's store is there a moment before it
        if time.monotonic() > deadline or stop.wait(_LOOK_S):
            return [0]
    counted = int(store.get('size'))
    if counted != size:
        raise SettingError(f'num_learners: {size} is not allowed: learner 0 counts {counted}')
    # Who was here before is dead, and so is the group that it was of: its place stays taken.
    if store.add(f'arrived/{rank}', 1) != 1:
        return [0]
    while True:
        missing = [each for each in range(size) if not store.check([f'arrived/{each}'])]
        if not missing or time.monotonic() > deadline or stop.is_set():
            return missing
        stop.wait(_LOOK_S)


def _listen(host: str, port: int, address: str) -> Store | None:
    """
    Return the store of a new group, or None while the port is another one's.

    Raises:
        SettingError: the address is not of this host.
    """
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:  # perhaps of a process that is about to end
            return None
        raise SettingError(f'group_address: learner 0 cannot listen at {address!r}: '
                           f'{error.strerror}') from None
    # The socket is the store's from now on. It listens at this address only, not at all of them.
    return _TCPStore(host, port, is_master=True, wait_for_workers=False,
                     timeout=timedelta(seconds=_TALK_S), master_listen_fd=listener.detach())


def _reach(host: str, port: int) -> Store | None:
    """Return the first learner's store, or None while it is not there."""
    try:
        socket.create_connection((host, port), timeout=_TRY_S).close()
        return _TCPStore(host, port, is_master=False, wait_for_workers=False,
                         timeout=timedelta(seconds=_TALK_S))
    except (OSError, RuntimeError):
        return None


def _own_address(host: str, port: int, address: str) -> str:
    """
    Return the address of this host on the way to the first learner.

    Raises:
        SettingError: there is no way.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SettingError(f'group_address: {address!r}: {error.strerror}') from None


def _interface(own: str) -> str:
    """Return the network interface with an address of this host."""
    return next((name for name, addresses in psutil.net_if_addrs().items()
                 if own in [each.address for each in addresses]), '')


def _to_tensor(data: bytes, length: int) -> Tensor:
    """Return bytes as uint8 [length], with zeros behind."""
    return torch.frombuffer(bytearray(data.ljust(length, b'\0')), dtype=torch.uint8)


def _named(ranks: Sequence[int]) -> str:
    return f'learner{"s" if len(ranks) > 1 else ""} {", ".join(map(str, ranks))}'

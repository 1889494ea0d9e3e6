"""
A device that is none: to show without a GPU that what is written for one would be right on it.

Its tensors hold their numbers in host memory, but say that they are elsewhere, on PyTorch's
``lazy`` device, and every operator goes through here. What a CUDA device refuses is refused:
tensors of host memory beside its own, but for numbers and indices. What a GPU does later is done
later: copies on a stream of their own once that stream is waited for, copies to pinned memory once
they are; till then there is nothing of use. What makes the host wait is written down.
"""

import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

ATEN = torch.ops.aten
DEVICE = torch.device('lazy', 0)
# What may be done on a stream that only copies.
ON_A_SIDE_STREAM = {ATEN.slice, ATEN.alias, ATEN.detach, ATEN.empty, ATEN.copy_, ATEN._to_copy}
# Their results' shape depends on numbers that only the device knows.
COUNTS = {ATEN.nonzero, ATEN.masked_select}


class FakeStream:
    """A queue of copies that are not made yet."""

    def __init__(self, fake):
        self.fake, self.queue = fake, []

    def synchronize(self):
        self.fake.waits.append('synchronize')
        self.flush()

    def flush(self):
        queue, self.queue = self.queue, []
        for copy in queue:
            copy()

    def wait_stream(self, other):
        other.flush()


class Block:
    """Memory: the stream that it was allocated on, and others that it is known to be used on."""

    def __init__(self, stream):
        self.stream, self.recorded = stream, {stream}


class FakeTensor(torch.Tensor):
    """A tensor of the device; ``inner`` has its numbers."""

    @staticmethod
    def __new__(cls, inner, block):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=DEVICE)

    def __init__(self, inner, block):
        self.inner, self.block = inner, block

    def __repr__(self):
        return f'FakeTensor({self.inner})'

    def __deepcopy__(self, memo):
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        copied._is_param = getattr(self, '_is_param', False)
        return memo.setdefault(id(self), copied)

    def __reduce_ex__(self, protocol):
        # Of another device, torch.load with map_location makes one of host memory.
        return self.inner.__reduce_ex__(protocol)

    def tolist(self):
        return self.cpu().tolist()

    def record_stream(self, stream):
        self.block.recorded.add(stream)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f'{func}: the fake device is switched off')


class FakeDevice(TorchDispatchMode):
    """
    The device; a context in which it can be used.

    Attributes:
        waits: what the host has waited for so far.
    """

    def __init__(self):
        super().__init__()
        self.waits = []
        self.main = self.current = FakeStream(self)
        self._pinned = []

    def install(self, monkeypatch):
        """Stand in for CUDA where ``rl/device.py`` calls it."""
        autocast = torch.autocast

        def none_here(kind, *args, enabled=True, **kwargs):
            if kind != DEVICE.type:
                return autocast(kind, *args, enabled=enabled, **kwargs)
            assert not enabled, 'the fake device computes in float32 only'
            return contextlib.nullcontext()

        monkeypatch.setattr(torch, 'autocast', none_here)
        monkeypatch.setattr(torch.cuda, 'device', lambda device: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, 'Stream', lambda device: FakeStream(self))
        monkeypatch.setattr(torch.cuda, 'stream', self._on)
        monkeypatch.setattr(torch.cuda, 'current_stream', lambda device: self.current)

    @contextlib.contextmanager
    def _on(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, packet = dict(kwargs or {}), func.overloadpacket
        if packet is ATEN.is_pinned:
            return self._is_pinned(args[0])
        if packet in (ATEN._pin_memory, ATEN.pin_memory):
            return self._pin(args[0].clone(memory_format=torch.contiguous_format))
        pin = kwargs.pop('pin_memory', None)
        device = kwargs.get('device')
        if packet is ATEN._to_copy and device is not None:
            return self._move(func, args[0], device, kwargs)
        if packet is ATEN.copy_:
            return self._copy(*args, **kwargs)
        tensors = [each for each in tree_iter((args, kwargs)) if isinstance(each, torch.Tensor)]
        here = [each for each in tensors if isinstance(each, FakeTensor)]
        if device is not None:
            kwargs['device'] = 'cpu'
        if here:
            self._check(func, args, tensors, here)
        result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if device.type == DEVICE.type if device is not None else bool(here):
            return tree_map(lambda each: self._wrap(each, here), result)
        return self._pin(result) if pin else result

    def _check(self, func, args, tensors, here):
        """Refuse what CUDA would refuse, and write down what the host waits for."""
        packet = func.overloadpacket
        if self.current is not self.main and packet not in ON_A_SIDE_STREAM:
            raise RuntimeError(f'{func}: on a stream that only copies')
        for each in here:
            self._usable(func, each)
        indices = args[1] if packet in (ATEN.index, ATEN.index_put, ATEN.index_put_) else []
        for each in tensors:
            if isinstance(each, FakeTensor) or any(each is index for index in indices):
                continue
            if each.dim() or torch.Tag.pointwise not in func.tags:
                raise RuntimeError(f'{func}: {tuple(each.shape)} of host memory beside the device')
        if packet is ATEN._local_scalar_dense:
            self.waits.append('item')
        for index in indices:
            if index is not None and not isinstance(index, FakeTensor):
                self.waits.append('an index of host memory')
            elif index is not None and index.dtype == torch.bool:
                self.waits.append('a mask as an index')
        if packet in COUNTS:
            self.waits.append(str(packet))

    def _usable(self, func, tensor):
        if tensor.block.stream.queue and self.current is not tensor.block.stream:
            raise RuntimeError(f'{func}: used before its copy was waited for')
        if self.current not in tensor.block.recorded:
            raise RuntimeError(f'{func}: used on a stream that its memory does not know of')

    def _move(self, func, tensor, device, kwargs):
        """Copy a whole tensor from one device to another, or here to another dtype."""
        waits = not kwargs.pop('non_blocking', False)
        kwargs.pop('device')
        if device.type == DEVICE.type and isinstance(tensor, FakeTensor):
            self._usable(func, tensor)
            return self._wrap(func(tensor.inner, **kwargs))
        if device.type == DEVICE.type:
            inner = _nothing(func(tensor, **kwargs))
            if waits or not self._is_pinned(tensor) or not tensor.is_contiguous():
                self.waits.append('a copy to the device')
            self._do(lambda: inner.copy_(tensor))
            return self._wrap(inner)
        if isinstance(tensor, FakeTensor):
            self._usable(func, tensor)
            self.waits.append('a copy to the host')
        return func(_inner(tensor), **kwargs)

    def _copy(self, target, source, non_blocking=False):
        if isinstance(source, FakeTensor) and self.current is not source.block.stream:
            self._usable(ATEN.copy_, source)
        if isinstance(target, FakeTensor):
            if not isinstance(source, FakeTensor) and source.dim():
                self.waits.append('a copy to the device')
            if self.current is not target.block.stream:
                self._usable(ATEN.copy_, target)
            self._do(lambda: target.inner.copy_(_inner(source)))
        elif not isinstance(source, FakeTensor):
            target.copy_(source)
        elif non_blocking and self._is_pinned(target):
            _nothing(target)
            self.current.queue.append(lambda: target.copy_(source.inner))
        else:
            self.waits.append('a copy to the host')
            target.copy_(source.inner)
        return target

    def _do(self, copy):
        """Copy, now or once this stream is waited for."""
        if self.current is self.main:
            copy()
        else:
            self.current.queue.append(copy)

    def _wrap(self, result, inputs=()):
        if not isinstance(result, torch.Tensor):
            return result
        for each in inputs:
            if each.inner is result:
                return each
        memory = result.untyped_storage().data_ptr()
        block = next((each.block for each in inputs
                      if each.inner.untyped_storage().data_ptr() == memory != 0), None)
        return FakeTensor(result, block or Block(self.current))

    def _pin(self, tensor):
        self._pinned.append(tensor)
        return tensor

    def _is_pinned(self, tensor):
        return any(each.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
                   for each in self._pinned)


def _inner(each):
    return each.inner if isinstance(each, FakeTensor) else each


def _nothing(tensor):
    """Return a tensor with bytes that no test expects."""
    tensor.untyped_storage().fill_(0x6b)
    return tensor

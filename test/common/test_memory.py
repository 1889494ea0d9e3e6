"""An input takes no more than a quarter of the free memory."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from refusals import refusal

from vdl_ros.common import memory


def test_memory_that_a_container_uses_already_is_not_free(tmp_path, monkeypatch):
    """Pages of files are: the kernel takes them back."""
    monkeypatch.setattr(memory, '_CGROUP', tmp_path)
    monkeypatch.setattr(memory.psutil, 'virtual_memory', lambda: SimpleNamespace(available=9000))
    assert memory.free_memory() == 9000, 'no container'
    for name, text, free in (
            ('max', 'max', 9000), ('max', '8000', 8000), ('current', '3000', 5000),
            ('stat', 'anon 1500\nactive_file 1000\ninactive_file 500\n', 6500),
            ('current', '9700', 0), ('max', '20000', 9000)):
        (tmp_path / f'memory.{name}').write_text(f'{text}\n')
        assert memory.free_memory() == free, (name, text)


def test_what_takes_more_than_a_quarter_of_the_free_memory_is_refused(monkeypatch):
    monkeypatch.setattr(memory, 'free_memory', lambda: 400_000_000)
    memory.check_size(100_000_000, 'x')
    with pytest.raises(ValueError, match='^x: 101 MB in memory are not allowed: at most 100 MB'):
        memory.check_size(101_000_000, 'x')
    with memory.limited_memory('x'):
        np.empty(1_000_000)
    with pytest.raises(ValueError, match='^x: more than 100 MB in memory are not allowed'), \
            memory.limited_memory('x'):
        np.empty(1_000_000_000)
    np.empty(1_000_000_000)


def fail(text):
    raise RuntimeError(text)


def test_a_training_that_lacks_memory_names_what_takes_it_and_other_errors_stay():
    settings = {'batch_size': 64, 'lstm_size': 0, 'network': 'mlp', 'seed': 1}
    for work, size, reason in (
            (torch.empty, 10**14, ': 400000000000000 bytes were asked for'),
            (np.empty, (10**6, 10**8),
             ': 728. TiB for an array with shape (1000000, 100000000) were asked for'),
            (bytearray, 10**16, ''),
            (fail, 'CUDA out of memory. Tried to allocate 2 GiB.', ': 2 GiB were asked for'),
            (fail, "Unable to convert call argument '0' to Python object", '')):
        line = refusal(memory.OutOfMemoryError, memory.named_lack_of_memory(settings)(work), size)
        assert line == (
            f'out of memory{reason}; it takes less with smaller batch_size 64, network mlp')
    with pytest.raises(RuntimeError, match='not of memory'), memory.named_lack_of_memory({}):
        fail('not of memory')

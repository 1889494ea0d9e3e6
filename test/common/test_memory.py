"""An input takes no more than a quarter of the free memory."""

import numpy as np
import pytest

from vdl_ros.common import memory


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

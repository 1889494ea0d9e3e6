"""The choice of a device; nothing here needs one."""

import pytest
import torch

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.device import CPU, choose_device


def test_learners_take_devices_in_turn_and_a_missing_one_is_one_line(monkeypatch):
    for name, count, expected in (
            ('auto', 0, ['cpu', 'cpu']), ('cpu', 2, ['cpu', 'cpu']), ('cuda', 1, ['cuda:0'] * 2),
            ('auto', 2, ['cuda:0', 'cuda:1', 'cuda:0']), ('cuda', 3, ['cuda:0', 'cuda:1'])):
        monkeypatch.setattr(torch.cuda, 'is_available', lambda count=count: count > 0)
        monkeypatch.setattr(torch.cuda, 'device_count', lambda count=count: count)
        found = [str(choose_device(name, rank)) for rank in range(len(expected))]
        assert found == expected, (name, count)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 0)
    with pytest.raises(SettingError) as error:
        choose_device('cuda')
    assert str(error.value) == ("device: 'cuda' is not allowed: PyTorch finds no CUDA device "
                                "here; 'auto' or 'cpu'")
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: pytest.fail('CUDA was initialized'))
    assert choose_device('cpu') == CPU

"""The faster precision is measured, also while other programs use the machine."""

import torch

from vdl_ros.common.tensor_file import faster_in_bfloat16


def is_faster(float32, bfloat16):
    """Return what is measured where runs take these times in turn."""
    times, now, dtypes = {False: iter(float32), True: iter(bfloat16)}, [9.0], set()

    def work():
        dtypes.add(torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype)
        now[0] += next(times[torch.is_autocast_enabled('cpu')]) / 100.0

    found = faster_in_bfloat16(work, lambda: now[0])
    assert dtypes == {torch.float32, torch.bfloat16}
    assert not torch.is_autocast_enabled('cpu'), 'off afterwards'
    return found


def test_both_precisions_are_measured_and_the_faster_is_found_despite_slow_runs():
    assert is_faster([2.0] * 5, [1.0] * 5)
    assert not is_faster([1.0] * 5, [3.0] * 5)
    assert is_faster([2.0] * 5, [9.0, 9.0, 1.0, 9.0, 9.0])
    assert not is_faster([50.0, 1.0, 50.0, 50.0, 50.0], [2.0] * 5)


def test_large_networks_are_measured_for_seconds_only():
    assert is_faster([90.0, 30.0], [80.0, 20.0])

"""The faster precision is measured, also while other programs use the machine."""

import torch

from vdl_ros.common.tensor_file import faster_in_bfloat16


class Machine:
    """A clock that only advances by the work, by a different time for each precision."""

    def __init__(self, float32, bfloat16):
        self.times = {False: iter(float32), True: iter(bfloat16)}
        self.now = 0.0
        self.dtypes = set()

    def work(self):
        lowered = torch.is_autocast_enabled('cpu')
        self.dtypes.add(torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype)
        self.now += next(self.times[lowered])

    def is_faster(self):
        return faster_in_bfloat16(self.work, lambda: self.now)


def test_both_precisions_are_measured_and_the_faster_is_found_despite_slow_runs():
    quick = Machine([2.0] * 5, [1.0] * 5)
    assert quick.is_faster()
    assert quick.dtypes == {torch.float32, torch.bfloat16}
    assert not torch.is_autocast_enabled('cpu'), 'off afterwards'
    assert not Machine([1.0] * 5, [3.0] * 5).is_faster()
    assert Machine([2.0] * 5, [9.0, 9.0, 1.0, 9.0, 9.0]).is_faster()
    assert not Machine([50.0, 1.0, 50.0, 50.0, 50.0], [2.0] * 5).is_faster()

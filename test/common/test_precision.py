"""The faster precision is found by trying, whatever else the machine does meanwhile."""

import torch

from vdl_ros.common.precision import faster_in_bfloat16


class Machine:
    """A clock that moves only with the work: each precision has times of its own."""

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


def test_the_faster_one_is_found_and_both_are_tried():
    quick = Machine([2.0] * 5, [1.0] * 5)
    assert quick.is_faster()
    assert quick.dtypes == {torch.float32, torch.bfloat16}
    assert not Machine([1.0] * 5, [3.0] * 5).is_faster()


def test_a_disturbance_does_not_decide():
    assert Machine([2.0] * 5, [9.0, 9.0, 1.0, 9.0, 9.0]).is_faster()
    assert not Machine([50.0, 1.0, 50.0, 50.0, 50.0], [2.0] * 5).is_faster()


def test_nothing_is_left_switched_on():
    faster_in_bfloat16(lambda: None)
    assert not torch.is_autocast_enabled('cpu')

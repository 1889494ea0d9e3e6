"""A standstill is noticed by whoever comes first after it, input or update."""

import math

import pytest

from vdl_ros.arm.control.standstill import StandstillDetector


class Clock:
    """Time that the test sets, s."""

    now = 5.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize('longest_gap', [1.0, math.inf])
def test_a_gap_counts_before_and_after_the_next_update_until_input_has_settled(longest_gap):
    clock = Clock()
    detector = StandstillDetector(longest_gap, settling=0.5, clock=clock)
    clock.now += 5.0  # a slow start
    assert not detector.recent
    assert not detector.update()
    clock.now += 0.9
    assert not detector.recent
    assert not detector.update()
    clock.now += 60.0
    is_standstill = longest_gap < 60.0
    assert detector.recent is is_standstill  # before the first update
    assert detector.update() is is_standstill
    clock.now += 0.4
    assert detector.update() is detector.recent is is_standstill
    clock.now += 0.2
    assert not detector.update()
    assert not detector.recent

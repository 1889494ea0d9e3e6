"""Restarts of a failing process: delays grow, their number is bounded, and work resets both."""

from vdl_ros.ros.restart_delays import RestartDelays


def test_a_process_that_never_works_is_given_up_after_growing_delays():
    delays = RestartDelays()
    assert [delays.next(0.0) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 32, 32, None]


def test_a_process_that_dies_after_every_start_up_is_given_up_too():
    delays = RestartDelays()
    found = [delays.next(10.0) for _ in range(20)]
    assert None in found
    assert found[0] == 1


def test_a_process_that_is_killed_now_and_then_is_always_started_again_soon():
    delays = RestartDelays()
    assert {delays.next(24.0) for _ in range(1000)} == {1.0}


def test_work_after_failures_shortens_the_delay_again():
    delays = RestartDelays()
    assert [delays.next(0.0) for _ in range(4)] == [1, 2, 4, 8]
    assert delays.next(3600.0) == 1

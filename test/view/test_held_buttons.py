"""Held buttons: motors are on while buttons are held, and time out without events."""

from vdl_ros.view.panel import HeldButtons

TIMEOUT = 0.2


def test_button_is_held_until_release():
    held = HeldButtons(TIMEOUT)
    assert held.directions(0.0) is None
    held.hold(1, 'shoulder', -1, 0.0)
    assert held.directions(0.1) == [0, -1, 0, 0, 0]
    held.release(1, 'shoulder', -1)
    assert held.directions(0.1) is None
    held.release(1, 'shoulder', -1)


def test_button_is_released_after_timeout():
    held = HeldButtons(TIMEOUT)
    for step in range(10):
        held.hold(1, 'base', 1, step * 0.05)
        assert held.directions(step * 0.05 + 0.04) == [1, 0, 0, 0, 0]
    assert held.directions(0.45 + TIMEOUT) == [1, 0, 0, 0, 0]
    assert held.directions(0.45 + TIMEOUT + 0.01) is None
    # It stays released for an earlier time.
    assert held.directions(0.45) is None


def test_buttons_of_two_clients_combine_and_one_disconnects():
    held = HeldButtons(TIMEOUT)
    held.hold(1, 'base', 1, 0.0)
    held.hold(2, 'wrist', -1, 0.0)
    held.hold(2, 'gripper', 1, 0.0)
    assert held.directions(0.1) == [1, 0, 0, -1, 1]
    held.release_all(2)
    assert held.directions(0.1) == [1, 0, 0, 0, 0]
    held.release_all()
    assert held.directions(0.1) is None


def test_opposite_buttons_cancel_but_count_as_held():
    held = HeldButtons(TIMEOUT)
    held.hold(1, 'elbow', 1, 0.0)
    held.hold(2, 'elbow', -1, 0.0)
    assert held.directions(0.1) == [0, 0, 0, 0, 0]
    held.hold(3, 'elbow', 1, 0.0)
    assert held.directions(0.1) == [0, 0, 1, 0, 0]

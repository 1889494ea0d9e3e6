"""Held buttons: motors are on while buttons are held, and time out without events."""

from vdl_ros.view.panel import HeldButtons

TIMEOUT = 0.2


def test_button_is_held_until_it_is_released_or_times_out():
    held = HeldButtons(TIMEOUT)
    assert held.directions(0.0) is None
    for step in range(10):
        held.hold(1, 'shoulder', -1, step * 0.05)
        assert held.directions(step * 0.05 + 0.04) == [0, -1, 0, 0, 0]
    assert held.directions(0.45 + TIMEOUT) == [0, -1, 0, 0, 0]
    assert held.directions(0.45 + TIMEOUT + 0.01) is None
    # It stays released for an earlier time.
    assert held.directions(0.45) is None
    held.hold(1, 'shoulder', -1, 1.0)
    for _ in range(2):
        held.release(1, 'shoulder', -1)
        assert held.directions(1.0) is None


def test_buttons_of_clients_combine_opposite_ones_cancel_and_one_client_disconnects():
    held = HeldButtons(TIMEOUT)
    for client, joint, direction in ((1, 'base', 1), (2, 'wrist', -1), (2, 'base', -1)):
        held.hold(client, joint, direction, 0.0)
    assert held.directions(0.1) == [0, 0, 0, -1, 0]
    held.hold(3, 'base', 1, 0.0)
    assert held.directions(0.1) == [1, 0, 0, -1, 0]
    held.release_all(2)
    assert held.directions(0.1) == [1, 0, 0, 0, 0]
    held.hold(2, 'base', -1, 0.0)
    held.release(3, 'base', 1)
    assert held.directions(0.1) == [0, 0, 0, 0, 0], 'they count as held'
    held.release_all()
    assert held.directions(0.1) is None

"""Motors are on while buttons are held, and silence lets go."""

from vdl_ros.view.held_buttons import HeldButtons

TIMEOUT = 0.2


def test_a_button_is_held_until_it_is_let_go():
    held = HeldButtons(TIMEOUT)
    assert held.directions(0.0) is None
    held.hold(1, 'shoulder', -1, 0.0)
    assert held.directions(0.1) == [0, -1, 0, 0, 0]
    held.release(1, 'shoulder', -1)
    assert held.directions(0.1) is None
    held.release(1, 'shoulder', -1)


def test_silence_lets_go():
    held = HeldButtons(TIMEOUT)
    for step in range(10):
        held.hold(1, 'base', 1, step * 0.05)
        assert held.directions(step * 0.05 + 0.04) == [1, 0, 0, 0, 0]
    assert held.directions(0.45 + TIMEOUT) == [1, 0, 0, 0, 0]
    assert held.directions(0.45 + TIMEOUT + 0.01) is None
    # And it is not held again when somebody looks at an earlier time.
    assert held.directions(0.45) is None


def test_two_people_hold_different_motors_and_one_leaves():
    held = HeldButtons(TIMEOUT)
    held.hold(1, 'base', 1, 0.0)
    held.hold(2, 'wrist', -1, 0.0)
    held.hold(2, 'gripper', 1, 0.0)
    assert held.directions(0.1) == [1, 0, 0, -1, 1]
    held.forget(2)
    assert held.directions(0.1) == [1, 0, 0, 0, 0]
    held.forget()
    assert held.directions(0.1) is None


def test_who_pull_at_both_ends_get_nothing_but_are_there():
    held = HeldButtons(TIMEOUT)
    held.hold(1, 'elbow', 1, 0.0)
    held.hold(2, 'elbow', -1, 0.0)
    assert held.directions(0.1) == [0, 0, 0, 0, 0]
    held.hold(3, 'elbow', 1, 0.0)
    assert held.directions(0.1) == [0, 0, 1, 0, 0]

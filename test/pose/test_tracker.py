"""The joint tracker: commands, estimates, outliers, limits and resets."""


import numpy as np
import pytest

from vdl_ros.pose.joint_filter import RESPONSE_TIME, JointTracker

LOWER, UPPER, SPEED = [-2.0, -1.0], [2.0, 1.5], [0.4, 0.2]
STD = np.array([0.05, 0.05])


class Arm:
    """Two joints that follow their commands, with estimates at 20 Hz."""

    def __init__(self, positions=(0.0, 0.0)):
        self.tracker = JointTracker(LOWER, UPPER, SPEED)
        self.positions, self.now, self.directions = np.array(positions), 0.0, np.zeros(2)

    def command(self, *directions):
        self.directions = np.array(directions, float)
        self.tracker.command(self.now - RESPONSE_TIME, directions)

    def see(self, count=1, off=(0.0, 0.0), std=STD):
        """Return the track after some estimates with the error ``off``."""
        for _ in range(count):
            self.positions = np.clip(self.positions + self.directions * SPEED * 0.05, LOWER, UPPER)
            self.now += 0.05
            track = self.tracker.update(self.now, self.positions + off, std)
        return track


def test_a_track_is_as_certain_as_its_estimates():
    track = Arm((0.3, -0.2)).see()
    assert track.positions == pytest.approx([0.3, -0.2], abs=0.01), 'the first, unchanged'
    assert (track.std > 0.5 * STD).all()
    assert (track.std < 4.0 * STD).all()
    assert (Arm().see(std=np.array([2.0, 2.0])).std > 0.5).all()
    # Repeated pictures add no certainty.
    arm = Arm()
    once = arm.see(off=(0.1, 0.1)).std
    assert (arm.see(3, off=(0.1, 0.1)).std > 0.6 * once).all()


def test_a_command_takes_effect_at_its_stamp():
    arm = Arm()
    arm.see()
    # ArmStatus now: done after the response time, one picture and a bit later.
    arm.tracker.command(arm.now, [1, 0])
    arm.tracker.command(arm.now + 0.1, [0, 0])
    for _ in range(6):
        arm.now += 0.05
        track = arm.tracker.update(arm.now, [0.0, 0.0], [5.0, 5.0])
    assert track.positions[0] == pytest.approx(0.1 * SPEED[0], abs=0.01)


def test_outliers_are_outweighed_while_the_arm_moves():
    arm = Arm((-1.0, -0.5))
    arm.see()
    arm.command(1, 1)
    for number in range(60):
        track = arm.see(off=(2.0, 1.0) if number % 4 == 1 else (0.0, 0.0))
        # Undecided after the first estimate, but not for long.
        if number > 8 or track.std.max() <= 0.2:
            assert np.abs(track.positions - arm.positions).max() < 0.1
    assert (track.std < 0.1).all()


def test_the_track_recovers_after_a_move_by_hand():
    arm = Arm((1.0, 1.0))
    arm.see(40)
    arm.positions = np.array([-1.0, -0.5])
    track = arm.see(200)
    assert track.positions == pytest.approx([-1.0, -0.5], abs=0.05)
    assert (track.std < 0.1).all()


def test_a_joint_that_is_held_does_not_seem_to_follow_its_motor_for_ever():
    arm = Arm()
    seen = []
    for number in range(400):
        direction = 1 if number % 40 < 20 else -1
        arm.tracker.command(arm.now, [direction, 0])
        arm.now += 0.05
        seen.append(arm.tracker.update(arm.now, [0.0, 0.0], STD).positions[0])
    assert max(seen[:30]) > 0.2, 'it is predicted to move'
    assert np.abs(seen[100:]).max() < 0.02
    # Once it is free it does.
    arm.command(1, 0)
    track = arm.see(60)
    assert track.positions == pytest.approx(arm.positions, abs=0.05)


def test_the_track_stays_within_the_limits():
    arm = Arm((1.9, -0.9))
    arm.see()
    arm.command(1, -1)
    track = arm.see(60, std=np.array([1.0, 1.0]))
    assert track.positions == pytest.approx([2.0, -1.0], abs=0.15)
    beyond = arm.tracker.update(arm.now + 1.0, [3.1, -3.1], STD).positions
    for positions in (track.positions, beyond):
        assert ((positions >= LOWER) & (positions <= UPPER)).all()


def test_the_track_resets_when_time_goes_back():
    arm = Arm((1.0, 1.0))
    arm.see(60)
    arm.now = 0.0
    arm.positions = np.array([-1.0, -0.5])
    track = arm.see()
    assert track.positions == pytest.approx([-1.0, -0.5], abs=0.02)
    arm.command(1, 0)
    assert arm.see(10).positions == pytest.approx(arm.positions, abs=0.03)

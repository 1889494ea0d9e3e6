"""One motor and its gear without physics: delay, speed, play, load, clutch."""

import dataclasses

import numpy as np
import pytest

from vdl_ros.arm.simulation.motor_model import GearMotors
from vdl_ros.arm.simulation.simulation_config import SimulationConfig

STEP = 0.004
EXACT = SimulationConfig(
    timestep=STEP, dead_zone=0.0, start_delay=0.0, time_constant=0.0, load_slowdown=0.0,
    sag=0.01)


class One:
    """One motor of 1 rad/s whose joint follows its gear at once; limits at -1 and 1."""

    def __init__(self, play=0.0, **settings):
        self.motors = GearMotors(
            dataclasses.replace(EXACT, **settings), np.array([1.0]), np.array([-1.0]),
            np.array([1.0]), np.array([0.5]), np.array([0.05]))
        self.motors.place(np.array([0.0]), np.array([play]))

    @property
    def angle(self):
        return self.motors.target[0]

    def run(self, command, seconds, torque=0.0, position=None):
        for _ in range(round(seconds / STEP)):
            self.motors.step([command], [self.angle if position is None else position], [torque])
        return self.angle


def test_an_ideal_motor_turns_at_its_speed_and_stops_at_once():
    for way in (1, -1):
        one = One()
        assert one.motors.step([0], [0.0], [0.0]) is False, 'nothing moved'
        assert one.run(way, 0.4) == pytest.approx(0.4 * way)
        assert one.motors.step([way], [one.angle], [0.0]) is True
        assert one.run(0, 1.0) == pytest.approx(0.404 * way)


def test_motor_starts_after_delay_and_accelerates():
    assert One(start_delay=0.1).run(1, 0.1) == 0.0
    assert One(start_delay=0.1).run(1, 0.5) == pytest.approx(0.4)
    # A first-order delay costs its time constant of way, and gives it back on coasting.
    one = One(time_constant=0.05)
    assert one.run(1, 0.6) == pytest.approx(0.55, abs=STEP)
    assert one.run(0, 1.0) == pytest.approx(0.60, abs=STEP)


def test_play_is_lost_on_reversal_only():
    one = One(play=1.0, dead_zone=0.1)  # the motor lies at the forward end of its play
    assert one.run(1, 0.3) == pytest.approx(0.3)
    assert one.run(-1, 0.1) == pytest.approx(0.3)
    assert one.run(-1, 0.2) == pytest.approx(0.1)
    assert one.run(0, 0.1) == pytest.approx(0.1)
    assert one.run(-1, 0.1) == pytest.approx(0.0)
    assert One(play=-1.0, dead_zone=0.1).run(1, 0.3) == pytest.approx(0.2)


def test_load_changes_the_speed():
    assert One(load_slowdown=0.2).run(1, 0.5, torque=0.5) == pytest.approx(0.4)
    assert One(load_slowdown=0.2).run(1, 0.5, torque=-0.5) == pytest.approx(0.6)
    assert One(load_slowdown=0.2).run(-1, 0.5, torque=0.5) == pytest.approx(-0.6)
    # However large the torque, it neither turns back nor runs away.
    assert One(load_slowdown=0.9).run(1, 0.4, torque=100.0) == 0.0
    assert One(load_slowdown=0.9).run(1, 0.4, torque=-100.0) == pytest.approx(0.8)


def test_clutch_slips_at_limits_and_obstacles():
    one = One(dead_zone=0.1)
    assert one.run(1, 5.0) == pytest.approx(1.01)  # as far as the joint gives way
    assert one.run(-1, 0.2) == pytest.approx(0.91)  # nothing was wound up but the play
    assert One().run(1, 5.0, position=0.0) == pytest.approx(0.05)

"""Simulated time follows wall time without drift, and drops large lags."""

import math

import pytest

from vdl_ros.arm.simulation.pacer import Pacer
from vdl_ros.arm.simulation.simulation import ArmSimulation
from vdl_ros.arm.simulation.simulation_config import SimulationConfig


@pytest.mark.parametrize('factor', [0.1, 1.0, 4.0])
def test_due_time_is_the_elapsed_wall_time(factor):
    pacer = Pacer(factor)
    assert pacer.due(100.0, 5.0) == 0.0
    assert pacer.due(100.05, 5.0) == pytest.approx(0.05 * factor)
    assert pacer.due(100.05, 5.0 + 0.05 * factor) == pytest.approx(0.0, abs=1e-9)
    assert pacer.due(100.05, 5.0 + 0.08 * factor) == 0.0
    assert pacer.resyncs == 0


def test_wait_is_in_wall_time():
    pacer = Pacer(4.0)
    pacer.sync(10.0, 2.0)
    assert pacer.wait(10.0, 2.4) == pytest.approx(0.1)
    assert pacer.wait(10.07, 2.4) == pytest.approx(0.03)
    assert pacer.wait(10.2, 2.4) == 0.0


@pytest.mark.parametrize('factor', [0.02, 0.5, 1.0, 7.0])
def test_uneven_calls_add_up_to_the_factor(factor):
    pacer = Pacer(factor)
    arm = ArmSimulation(SimulationConfig())
    wall = 50.0
    pacer.sync(wall, arm.requested_time)
    for step in range(400):
        wall += (0.001, 0.013, 0.007)[step % 3]
        arm.step(pacer.due(wall, arm.requested_time))
    assert arm.time == pytest.approx((wall - 50.0) * factor, abs=0.004)
    assert pacer.resyncs == 0


def test_large_lag_is_dropped():
    pacer = Pacer(1.0, max_lag=0.2)
    pacer.sync(0.0, 0.0)
    assert pacer.due(0.19, 0.0) == pytest.approx(0.19)
    assert pacer.due(5.0, 0.19) == 0.0
    assert pacer.resyncs == 1
    assert pacer.due(5.01, 0.19) == pytest.approx(0.01)


def test_simulation_far_ahead_resyncs():
    pacer = Pacer(1.0, max_lag=0.2)
    pacer.sync(0.0, 0.0)
    assert pacer.due(0.01, 60.0) == 0.0
    assert pacer.due(0.02, 60.0) == pytest.approx(0.01)
    assert pacer.resyncs == 1


@pytest.mark.parametrize('value', [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize('name', ['real_time_factor', 'max_lag'])
def test_invalid_pace_is_refused(name, value):
    with pytest.raises(ValueError, match=f'^{name}: .* is not allowed: a number, more than 0'):
        Pacer(**{name: value})

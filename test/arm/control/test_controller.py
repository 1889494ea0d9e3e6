"""Trajectory controller: on/off motors of the simulated arm in a closed loop, refusals, gaps."""

import collections
import dataclasses
import math
import re

import numpy as np
import pytest

from vdl_ros.arm.control.controller import ControllerConfig, TrajectoryController
from vdl_ros.arm.control.trajectory import TrajectoryError
from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.simulation import ArmSimulation
from vdl_ros.common.settings import SettingError

GEOMETRY = load()
PERIOD = 0.02
POINTS = [[0.8, 0.5, 0.6, -0.4, 0.30], [-0.6, -0.4, 1.2, 0.5, 0.05], [0.3, 0.7, -0.5, 0.2, 0.20]]
TIMES = [4.0, 10.0, 17.0]


class Loop:
    """A controller and a simulated arm; measurements come late and with noise."""

    def __init__(self, seed=0, delay=0.02, noise=0.0, **settings):
        self.arm = ArmSimulation(SimulationConfig(**settings), seed, GEOMETRY)
        self.controller = TrajectoryController(GEOMETRY)
        self.delay, self.noise = delay, noise
        self.now = 1000.0
        self.blind = False
        self.paused = ''
        self.hidden = []
        self.switches = np.zeros(5, int)
        self.path = np.zeros(5)
        self.last = np.zeros(5, np.int8)
        self._random = np.random.default_rng(seed)
        self._measured = collections.deque()

    def step(self):
        if not self.blind:
            seen = self.arm.joint_positions + self._random.normal(0.0, self.noise, 5)
            seen[self.hidden] = math.nan
            self._measured.append((self.now, seen))
        while len(self._measured) > 1 and self._measured[1][0] <= self.now - self.delay + 1e-9:
            self._measured.popleft()
        stamp, seen = self._measured[0]
        command = self.controller.update(self.now, seen, stamp, self.paused)
        assert command.dtype == np.int8
        # Never from one way to the other without a rest between.
        assert (command * self.last != -1).all()
        self.switches += command != self.last
        self.last = command
        before = self.arm.joint_positions
        self.arm.command(Motors.of(command.tolist()))
        self.arm.step(PERIOD)
        self.path += np.abs(self.arm.joint_positions - before)
        self.now += PERIOD
        return command

    def run(self, seconds=60.0):
        """Go on until the trajectory ends."""
        end = self.now + seconds
        while self.controller.state == 'running' and self.now < end:
            self.step()
        return self.controller.state

    def start(self, *trajectory, steps=0):
        """Start a trajectory, by default that of all joints, and take some steps."""
        self.controller.start(*(trajectory or (JOINTS, POINTS, TIMES)))
        for _ in range(steps):
            self.step()

    def rest(self):
        for _ in range(50):
            self.step()
        return self.arm.joint_positions


def assert_there(loop, target):
    assert (loop.controller.state, loop.controller.reason) == ('done', '')
    assert np.degrees(np.abs(loop.rest() - target)).max() < 3.0


def test_three_points_end_within_three_degrees_without_chatter():
    for seed, delay, noise, settings in (
            (0, 0.0, 0.0, {}), (1, 0.02, 0.0, {}), (2, 0.1, 0.002, {}), (3, 0.04, 0.005, {}),
            # Worn arms.
            (2, 0.04, 0.002, {'speed_variation': 0.3}), (2, 0.04, 0.002, {'dead_zone': 0.06}),
            (2, 0.04, 0.002, {'sag': 0.05}), (2, 0.04, 0.002, {'load_slowdown': 0.5}),
            (2, 0.04, 0.002, {'command_delay': 0.05, 'start_delay': 0.05, 'time_constant': 0.05})):
        case = (seed, delay, noise, settings)
        loop = Loop(seed, delay, noise, **settings)
        loop.start()
        loop.run()
        assert TIMES[-1] <= loop.now - 1000.0 < TIMES[-1] + 1.0 or settings, case
        # On and off: once for every bit of way longer than the bands leave, and for the ends.
        quantum = loop.controller.config.start_band - loop.controller.config.stop_band
        assert (loop.switches <= 2 * loop.path / quantum + 6).all(), (case, loop.switches)
        assert_there(loop, POINTS[-1])


@pytest.mark.parametrize('times', [TIMES, [0.1, 0.2, 0.3]], ids=['in time', 'too fast'])
def test_arm_passes_every_point_and_waits_for_slow_motors(times):
    loop = Loop(1)
    config = loop.controller.config
    loop.start(JOINTS, POINTS, times)
    nearest, progress = np.full((3, 5), math.inf), [0.0]
    while loop.controller.state == 'running':
        loop.step()
        nearest = np.minimum(nearest, np.abs(loop.arm.joint_positions - POINTS))
        progress.append(loop.controller.progress)
        if times is TIMES:
            assert np.abs(loop.controller.error).max() < config.path_tolerance + 0.05
    # Up to the tolerance of a path; the last point exactly.
    assert nearest.max() < (math.radians(3.0) if times is TIMES else config.path_tolerance + 0.02)
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    assert_there(loop, POINTS[-1])


def test_missing_measurements_stop_motors_and_abort():
    loop = Loop()
    loop.start(['base'], [[2.0]], [8.0], steps=100)
    loop.blind = True
    begun = loop.now
    config = loop.controller.config
    while loop.controller.state == 'running':
        command = loop.step()
        if loop.now - begun > config.stale_after + PERIOD * 2:
            assert not command.any()
    assert loop.controller.state == 'aborted'
    assert loop.controller.reason == 'no measurement of the joints for 3 s'
    assert loop.now - begun < config.stale_after + config.goal_timeout + 0.1
    # Also if one joint alone is not measured.
    loop = Loop()
    loop.hidden = [JOINTS.index('wrist')]
    loop.start()
    for _ in range(20):
        assert not loop.step().any()
    assert loop.run() == 'aborted'
    assert loop.controller.reason == 'no measurement of the joints for 3 s'
    # Who does not move it does not need it.
    loop.start(['base'], [[0.3]], [1.0])
    assert loop.run() == 'done'


def test_measurements_with_wrong_time_or_shape_are_ignored():
    controller = TrajectoryController(GEOMETRY)
    controller.start(['base'], [[1.0]], [1.0])
    for step, age in enumerate((-1.0, 1.0, math.nan, math.inf)):
        now = 10.0 + step * PERIOD
        assert not controller.update(now, np.zeros(5), now - age).any()
    assert not controller.update(10.1, np.zeros(4), 10.1).any()
    assert not controller.update(10.1, None, None).any()
    assert not controller.update(10.1, np.full(5, math.inf), 10.1).any()
    assert controller.state == 'running'
    moving = [controller.update(now, np.zeros(5), now)[0] for now in (10.12, 10.2, 10.3)]
    assert moving == [0, 1, 1]


def test_a_joint_that_is_stuck_is_named():
    controller = TrajectoryController(GEOMETRY)
    controller.start(['base', 'elbow'], [[0.5, 1.0]], [1.0])
    base = 0.0
    for step in range(1000):
        now = step * PERIOD
        base += 0.35 * PERIOD * controller.update(now, [base, 0, 0, 0, 0], now)[0]
    assert controller.state == 'aborted'
    assert 'elbow: ' in controller.reason
    assert controller.reason.endswith('rad from its target, no progress for 3 s')
    assert not controller.motors.any()


@pytest.mark.parametrize(('points', 'times'), [
    ([[0.11]], [60.0]), ([[0.11], [-0.11]] * 8, [2.0 + 4.0 * index for index in range(16)])])
def test_a_joint_that_does_not_move_on_a_slow_path_is_given_up(points, times):
    controller = TrajectoryController(GEOMETRY)
    controller.start(['base'], points, times)
    on = 0.0
    for step in range(round(60.0 / PERIOD)):
        command = controller.update(step * PERIOD, [0, 0.2, 0, 0, 0], step * PERIOD)
        on += PERIOD * abs(command[0])
    assert controller.state == 'aborted'
    assert re.fullmatch(
        r'base: \d+.\d+ rad from its target, no progress for 3 s', controller.reason)
    assert on == pytest.approx(ControllerConfig().goal_timeout, abs=0.1)


def test_a_new_trajectory_replaces_the_old_one_and_a_refused_one_stops_the_arm():
    loop = Loop()
    loop.start(JOINTS, POINTS, TIMES, steps=150)
    loop.start(['base', 'elbow'], [[-0.4, 0.2]], [3.0])
    stays = loop.rest()[[1, 3, 4]]
    assert loop.run() == 'done'
    assert loop.arm.joint_positions[[0, 2]] == pytest.approx([-0.4, 0.2], abs=math.radians(3))
    assert loop.arm.joint_positions[[1, 3, 4]] == pytest.approx(stays, abs=0.01)
    loop.start(['base'], [[1.5]], [5.0], steps=50)
    assert loop.last.any()
    with pytest.raises(TrajectoryError, match="'elbw': no such joint") as caught:
        loop.start(['base', 'elbw'], [[0, 0]], [1])
    assert (loop.controller.state, loop.controller.reason) == ('aborted', str(caught.value))
    assert not loop.controller.motors.any()
    for _ in range(20):
        assert not loop.step().any()


def test_cancel_stops_the_arm_and_resets_state():
    loop = Loop()
    loop.start(['base'], [[2.0]], [0.1], steps=25)
    assert loop.last[0] == 1
    loop.controller.cancel('enough')
    assert (loop.controller.state, loop.controller.reason) == ('aborted', 'enough')
    assert not loop.controller.motors.any()
    # Whoever does not call update meanwhile finds no old command that still counts.
    loop.now += 20.0
    loop.arm.command(Motors())
    loop.arm.step(1.0)
    here = float(loop.arm.joint_positions[0])
    loop.start(['base'], [[here]], [1.0])
    assert not loop.step().any()
    assert loop.run() == 'done'
    loop.controller.cancel()
    assert loop.controller.state == 'done'


def test_trajectory_is_aborted_when_time_goes_backward():
    loop = Loop()
    loop.start(['base'], [[1.5]], [6.0], steps=1)
    loop.now -= 100.0
    assert not loop.step().any()
    assert (loop.controller.state, loop.controller.reason) == ('aborted', 'time went backward')


def test_bands_that_would_chatter_are_refused():
    for settings, message in (
            ({'stop_band': 0.03}, 'stop_band: 0.03 is not allowed: less than start_band, 0.03'),
            ({'start_band': 0.05}, 'start_band: 0.05 .* less than goal_tolerance, 0.04'),
            ({'path_tolerance': 0.02}, 'start_band: .* less than path_tolerance, 0.02')):
        with pytest.raises(SettingError, match=message):
            dataclasses.replace(ControllerConfig(), **settings)


def test_pause_switches_motors_off_and_the_trajectory_goes_on_unless_it_lasts():
    loop = Loop(3)
    config = loop.controller.config
    loop.start(['base'], [[0.8]], [3.0])
    while not loop.last.any():
        loop.step()
    before = loop.controller.progress
    loop.paused = 'no viewer'
    for _ in range(round((config.goal_timeout - 1.0) / PERIOD)):
        assert not loop.step().any()
    assert (loop.controller.state, loop.controller.progress) == ('running', before)
    loop.paused = ''
    assert loop.run() == 'done'
    loop.start(['base'], [[-0.8]], [3.0])
    while not loop.last.any():
        loop.step()
    loop.paused, begun = 'no viewer', loop.now
    assert loop.run() == 'aborted'
    assert loop.controller.reason == 'no viewer for 3 s'
    assert loop.now - begun == pytest.approx(config.goal_timeout, abs=0.1)
    assert not loop.step().any()

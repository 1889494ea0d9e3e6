"""Trajectory controller: on/off motors of the simulated arm in a closed loop, and refusals."""

import collections
import dataclasses
import math

import numpy as np
import pytest

from vdl_ros.arm.control.controller import TrajectoryController, TrajectoryError
from vdl_ros.arm.control.controller_config import ControllerConfig
from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.motor_command import Motors
from vdl_ros.arm.simulation.simulation import ArmSimulation
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.common.settings import SettingError

GEOMETRY = load()
PERIOD = 0.02
POINTS = [[0.8, 0.5, 0.6, -0.4, 0.30], [-0.6, -0.4, 1.2, 0.5, 0.05], [0.3, 0.7, -0.5, 0.2, 0.20]]
TIMES = [4.0, 10.0, 17.0]


class Loop:
    """A controller and a simulated arm; measurements come late and with noise."""

    def __init__(self, seed=0, delay=0.02, noise=0.0, controller=None, **settings):
        self.arm = ArmSimulation(SimulationConfig(**settings), seed, GEOMETRY)
        self.controller = TrajectoryController(GEOMETRY, controller)
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

    def rest(self):
        for _ in range(50):
            self.step()
        return self.arm.joint_positions


def assert_there(loop, target):
    assert (loop.controller.state, loop.controller.reason) == ('done', '')
    assert np.degrees(np.abs(loop.rest() - target)).max() < 3.0


def assert_no_chatter(loop):
    # On and off: once for every bit of way longer than the bands leave, and a few for the ends.
    config = loop.controller.config
    quantum = config.start_band - config.stop_band
    assert (loop.switches <= 2 * loop.path / quantum + 6).all(), (loop.switches, loop.path)


@pytest.mark.parametrize('seed', range(6))
@pytest.mark.parametrize(('delay', 'noise'), [(0.0, 0.0), (0.02, 0.0), (0.1, 0.002),
                                              (0.04, 0.005)])
def test_three_points_end_within_three_degrees(seed, delay, noise):
    loop = Loop(seed, delay, noise)
    loop.controller.start(JOINTS, POINTS, TIMES)
    loop.run()
    assert TIMES[-1] <= loop.now - 1000.0 < TIMES[-1] + 1.0
    assert_no_chatter(loop)
    assert_there(loop, POINTS[-1])


@pytest.mark.parametrize('settings', [
    {'speed_variation': 0.3}, {'dead_zone': 0.06}, {'sag': 0.05}, {'load_slowdown': 0.5},
    {'command_delay': 0.05, 'start_delay': 0.05, 'time_constant': 0.05}], ids=str)
def test_worn_arm_reaches_the_goal(settings):
    loop = Loop(2, 0.04, 0.002, **settings)
    loop.controller.start(JOINTS, POINTS, TIMES)
    loop.run()
    assert_no_chatter(loop)
    assert_there(loop, POINTS[-1])


def test_arm_passes_every_point_and_keeps_the_path():
    loop = Loop(1)
    loop.controller.start(JOINTS, POINTS, TIMES)
    nearest = np.full((3, 5), math.inf)
    while loop.controller.state == 'running':
        loop.step()
        nearest = np.minimum(nearest, np.abs(loop.arm.joint_positions - POINTS))
        behind = np.abs(loop.controller.error).max()
        assert behind < loop.controller.config.path_tolerance + 0.05
    assert np.degrees(nearest).max() < 3.0


def test_trajectory_faster_than_the_motors_waits_for_them():
    loop = Loop()
    loop.controller.start(JOINTS, POINTS, [0.1, 0.2, 0.3])
    nearest = np.full((3, 5), math.inf)
    progress = [0.0]
    while loop.controller.state == 'running':
        loop.step()
        nearest = np.minimum(nearest, np.abs(loop.arm.joint_positions - POINTS))
        progress.append(loop.controller.progress)
    # Up to the tolerance of a path; the last point exactly.
    assert nearest.max() < loop.controller.config.path_tolerance + 0.02
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    assert_there(loop, POINTS[-1])


def test_long_distance_in_short_time_does_not_count_as_stuck():
    loop = Loop()
    loop.controller.start(['base'], [[2.0]], [0.0])
    loop.run()
    assert loop.now - 1000.0 > loop.controller.config.goal_timeout + 1.0
    assert_there(loop, [2.0, 0, 0, 0, 0])


def test_controller_continues_after_a_long_pause_between_updates():
    loop = Loop(delay=0.0)
    loop.controller.start(['base'], [[1.5], [0.0]], [6.0, 12.0])
    for _ in range(100):
        loop.step()
    progress = loop.controller.progress
    loop.arm.command(Motors())
    loop.arm.step(2.0)
    loop.now += 2.0
    loop.step()
    assert progress <= loop.controller.progress < progress + 0.05
    assert loop.run() == 'done'


def test_one_joint_moves_alone():
    loop = Loop(delay=0.0)
    loop.controller.start(['gripper'], [[0.3], [0.1]], [2.0, 4.0])
    while loop.controller.state == 'running':
        assert not loop.step()[:4].any()
        assert np.isnan(loop.controller.target[:4]).all()
    assert_there(loop, [0, 0, 0, 0, 0.1])


def test_no_motor_switches_if_the_arm_is_at_the_goal():
    loop = Loop(noise=0.005)
    loop.controller.start(JOINTS, [[0, 0, 0, 0, 0]], [20.0])
    assert loop.run() == 'done'
    assert not loop.switches.any()


def test_missing_measurements_stop_motors_and_abort():
    loop = Loop()
    loop.controller.start(['base'], [[2.0]], [8.0])
    for _ in range(100):
        loop.step()
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


def test_short_gap_in_measurements_is_bridged():
    loop = Loop()
    loop.controller.start(JOINTS, POINTS, TIMES)
    for blind in (False, True, False):
        loop.blind = blind
        for _ in range(75):
            loop.step()
    loop.run()
    assert_there(loop, POINTS[-1])


def test_unmeasured_joint_aborts_after_goal_timeout():
    loop = Loop()
    loop.hidden = [JOINTS.index('wrist')]
    loop.controller.start(JOINTS, POINTS, TIMES)
    for _ in range(20):
        assert not loop.step().any()
    assert loop.run() == 'aborted'
    assert loop.controller.reason == 'no measurement of the joints for 3 s'
    # Who does not move it does not need it.
    loop.controller.start(['base'], [[0.3]], [1.0])
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


BAD = [
    (['base', 'elbw'], [[0, 0]], [1], "'elbw': no such joint"),
    (['base', 'base'], [[0, 0]], [1], 'base: named twice'),
    (['base'], [[math.nan]], [1], 'point 0: base: nan'),
    (['base'], [], [], 'no point'),
    (['base'], [[0], [0]], [2, 1], 'point 1: time 1 s is not after 2 s'),
    (['base', 'wrist'], [[0, 0], [0, 1.5]], [1, 2], 'point 1: wrist: 1.5 rad is not allowed'),
]


@pytest.mark.parametrize(('names', 'points', 'times', 'reason'), BAD, ids=[b[3] for b in BAD])
def test_refused_trajectory_stops_the_arm(names, points, times, reason):
    loop = Loop()
    loop.controller.start(['base'], [[1.5]], [5.0])
    for _ in range(50):
        loop.step()
    assert loop.last.any() or loop.switches.any()
    with pytest.raises(TrajectoryError, match=reason) as it:
        loop.controller.start(names, points, times)
    assert (loop.controller.state, loop.controller.reason) == ('aborted', str(it.value))
    assert not loop.controller.motors.any()
    for _ in range(20):
        assert not loop.step().any()


def test_a_new_trajectory_replaces_the_old_one():
    loop = Loop()
    loop.controller.start(JOINTS, POINTS, TIMES)
    for _ in range(150):
        loop.step()
    loop.controller.start(['base', 'elbow'], [[-0.4, 0.2]], [3.0])
    stays = loop.rest()[[1, 3, 4]]
    assert loop.run() == 'done'
    assert loop.arm.joint_positions[[0, 2]] == pytest.approx([-0.4, 0.2], abs=math.radians(3))
    assert loop.arm.joint_positions[[1, 3, 4]] == pytest.approx(stays, abs=0.01)


def test_cancel_stops_the_arm_and_resets_state():
    loop = Loop()
    loop.controller.start(['base'], [[2.0]], [0.1])
    for _ in range(25):
        loop.step()
    assert loop.last[0] == 1
    loop.controller.cancel('enough')
    assert (loop.controller.state, loop.controller.reason) == ('aborted', 'enough')
    assert not loop.controller.motors.any()
    # Whoever does not call update meanwhile finds no old command that still counts.
    loop.now += 20.0
    loop.arm.command(Motors())
    loop.arm.step(1.0)
    here = float(loop.arm.joint_positions[0])
    loop.controller.start(['base'], [[here]], [1.0])
    assert not loop.step().any()
    assert loop.run() == 'done'
    loop.controller.cancel()
    assert loop.controller.state == 'done'


@pytest.mark.parametrize(('gap', 'state'), [(0.9, 'running'), (1.1, 'aborted'), (1e6, 'aborted')])
def test_trajectory_is_aborted_after_a_gap_between_updates(gap, state):
    loop = Loop()
    loop.controller = TrajectoryController(GEOMETRY, longest_gap=1.0)
    loop.now += 1e6
    loop.controller.start(['base'], [[1.5]], [6.0])
    for _ in range(30):
        loop.step()
    loop.now += gap
    loop.step()
    assert loop.controller.state == state
    if state == 'aborted':
        assert loop.controller.reason.startswith('no update for 1')
        assert not loop.controller.motors.any()
        # The gap before a trajectory does not matter.
        loop.now += 10.0
        loop.controller.start(['base'], [[1.5]], [6.0])
        loop.step()
        assert loop.controller.state == 'running'


def test_a_clock_that_goes_backward_aborts():
    loop = Loop()
    loop.controller.start(['base'], [[1.0]], [2.0])
    for _ in range(30):
        loop.step()
    loop.now -= 100.0
    assert not loop.step().any()
    assert (loop.controller.state, loop.controller.reason) == ('aborted', 'time went backward')


def test_an_idle_controller_commands_nothing():
    controller = TrajectoryController(GEOMETRY)
    assert not controller.update(0.0, np.zeros(5), 0.0).any()
    assert (controller.state, controller.progress) == ('idle', 0.0)


@pytest.mark.parametrize(('settings', 'message'), [
    ({'stop_band': 0.03}, 'stop_band: 0.03 is not allowed: less than start_band, 0.03'),
    ({'start_band': 0.05}, 'start_band: 0.05 is not allowed: less than goal_tolerance, 0.04'),
    ({'path_tolerance': 0.02}, 'start_band: .* less than path_tolerance, 0.02'),
])
def test_bands_that_would_chatter_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        dataclasses.replace(ControllerConfig(), **settings)


def test_pause_switches_motors_off_and_the_trajectory_goes_on_where_it_was():
    loop = Loop(3)
    loop.controller.start(['base'], [[0.8]], [3.0])
    while not loop.last.any():
        loop.step()
    before = loop.controller.progress
    loop.paused = 'no viewer'
    for _ in range(round((loop.controller.config.goal_timeout - 1.0) / PERIOD)):
        assert not loop.step().any()
    assert (loop.controller.state, loop.controller.progress) == ('running', before)
    loop.paused = ''
    assert loop.run() == 'done'


def test_pause_that_lasts_aborts_with_its_reason():
    loop = Loop(3)
    loop.controller.start(['base'], [[0.8]], [3.0])
    while not loop.last.any():
        loop.step()
    loop.paused, begun = 'no viewer', loop.now
    assert loop.run() == 'aborted'
    assert loop.controller.reason == 'no viewer for 3 s'
    assert loop.now - begun == pytest.approx(loop.controller.config.goal_timeout, abs=0.1)
    assert not loop.step().any()

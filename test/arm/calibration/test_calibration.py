"""Moves and estimates of a calibration, with twins of hidden parameters, in virtual time."""

import math

import numpy as np
import pytest

from vdl_ros.arm.calibration.calibration_file import SECTIONS
from vdl_ros.arm.calibration.estimation import calibration_of, estimate, lag, table
from vdl_ros.arm.calibration.moves import BY_CAMERA, BY_TRUTH, CalibrationError, CalibrationMoves
from vdl_ros.arm.driver.usb import Signs
from vdl_ros.arm.joints import JOINTS, Motors
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.arm.simulation.simulation import ArmSimulation
from vdl_ros.envs.owi535.arm_task import HELD_OUT, INSIDE

PERIOD = 0.02
SCENE = build_scene()
# Of the driver that commands the arms of these tests.
WIRED = Signs(base=1)
#: Errors that are allowed besides 10 %. Times: two steps of the physics, in which the simulation
#: rounds delays. Play: what a joint passes in one such step. Others: a fifth of a small value.
FLOORS = {'dead_zone': 0.002, 'start_delay': 0.008, 'delay': 0.008, 'response': 0.008,
          'load_slowdown': 0.02, 'sag': 0.0006}


class Bench:
    """A simulated arm, wired as it may be, and what measures it."""

    def __init__(self, config, signs=(1,) * 5, seed=0, age=0.0, noise=0.0, backward=1.0):
        self.arm = ArmSimulation(config, seed)
        self._signs, self._age, self._noise = np.array(signs), age, noise
        self._random = np.random.default_rng(seed)
        self._seen, self._error, self._before = [], np.zeros(5), None
        # Speeds backward, as a share of those forward.
        self._forward = np.array(self.arm._motors.speed)
        self._backward = self._forward * backward

    def measure(self):
        """Return stamp and positions; errors as those of ``envs/owi535/arm_task.py``."""
        positions = self.arm.joint_positions
        if self._noise:
            moved = 9.0 if self._before is None else np.abs(positions - self._before).max()
            keep = math.exp(-moved / 0.2 - PERIOD / 2.0)
            fresh = self._noise * self._random.standard_normal(5)
            self._error = keep * self._error + math.sqrt(1.0 - keep**2) * fresh
            self._before = positions
            positions = positions + self._error
            positions[3:] = math.nan
        self._seen.append((self.arm.time, positions))
        while len(self._seen) > 1 and self._seen[1][0] <= self.arm.time - self._age + 1e-9:
            self._seen.pop(0)
        return self._seen[0]

    def command(self, motors):
        directions = np.array(motors.values) * self._signs
        if directions.any():
            self.arm._motors.speed = np.where(
                directions < 0, self._backward, self._forward).tolist()
        self.arm.command(Motors.of(directions.tolist()))

    def run(self, moves, until=lambda moves: moves.done):
        """Let ``moves`` move the arm; return the directions that were on."""
        commanded = set()
        while not until(moves):
            stamp, positions = self.measure()
            motors = moves.update(self.arm.time, stamp, positions)
            self.command(motors)
            moves.accepted(self.arm.time, motors)
            commanded.add(motors.values)
            self.arm.step(PERIOD)
        return commanded


def moves_of(config=BY_TRUTH, joints=JOINTS):
    return CalibrationMoves(CollisionChecker(SCENE), config, joints)


def near(found, true, what, share=0.1):
    assert found == pytest.approx(true, rel=share, abs=FLOORS.get(what, 0.0)), what


@pytest.mark.parametrize(('ranges', 'seed'), [
    (HELD_OUT, 3), *(pytest.param(*each, marks=pytest.mark.slow)
                     for each in ((INSIDE, 1), (INSIDE, 2), (HELD_OUT, 4)))],
    ids=['held_out-3', 'inside-1', 'inside-2', 'held_out-4'])
def test_hidden_parameters_are_recovered(ranges, seed):
    random = np.random.default_rng(seed)
    hidden = ranges.draw(random, SCENE.geometry, 1).parameters
    config, signs = hidden.config(0), random.choice([-1, 1], 5)
    bench, moves = Bench(config, signs, seed), moves_of()
    commanded = bench.run(moves)
    assert all(sum(map(abs, each)) <= 1 for each in commanded), 'one motor at a time'
    assert np.abs(bench.arm.joint_positions[:4]).max() < 0.1, 'upright at the end'
    found = estimate(moves.recording, SCENE)
    print(table(found, WIRED))
    assert set(found) == set(JOINTS)
    calibration = calibration_of(found, SCENE, WIRED, 'truth')
    late = lag(SCENE, config.sag)
    for index, name in enumerate(JOINTS):
        joint = calibration.joints[name]
        assert joint.sign == signs[index] * getattr(WIRED, name)
        assert calibration.driver[f'{name}_sign'] == joint.sign
        near(joint.speed_forward, hidden.speed[0, index], f'{name} forward')
        near(joint.speed_backward, hidden.speed[0, index], f'{name} backward')
        near(joint.start_delay, config.start_delay, 'start_delay')
        near(joint.delay, config.command_delay + config.time_constant + late[index], 'delay')
        near(joint.dead_zone, config.dead_zone, 'dead_zone')
        if SCENE.load[index]:
            near(joint.sag, config.sag, 'sag')
            near(joint.load_slowdown, config.load_slowdown, 'load_slowdown')
    twin = calibration.simulation
    for name in ('dead_zone', 'start_delay', 'load_slowdown', 'sag'):
        near(twin[name], getattr(config, name), name)
    for name in JOINTS:
        near(twin[f'{name}_speed'], getattr(config, f'{name}_speed'), 'speed')
    near(twin['command_delay'] + twin['time_constant'],
         config.command_delay + config.time_constant, 'response')
    for section, names in SECTIONS.items():
        assert set(getattr(calibration, section)) == set(names)


def test_speeds_that_differ_by_direction():
    bench, moves = Bench(SimulationConfig(speed_variation=0.0), backward=0.7), moves_of(
        joints=('elbow',))
    bench.run(moves)
    found = estimate(moves.recording, SCENE)['elbow']
    speed = SCENE.geometry.velocity[JOINTS.index('elbow')]
    near(found.speed_forward.value, speed, 'forward', 0.03)
    near(found.speed_backward.value, 0.7 * speed, 'backward', 0.03)
    calibration = calibration_of({'elbow': found}, SCENE, WIRED, 'truth')
    travel = math.radians(320.0)
    assert calibration.driver['elbow_max_run_time'] > 1.1 * travel / (0.7 * speed)
    near(calibration.simulation['elbow_speed'], 0.85 * speed, 'speed', 0.03)


def test_by_camera_signs_and_speeds_come_out_and_the_rest_is_left_out():
    bench = Bench(SimulationConfig(shoulder_speed=0.3, speed_variation=0.0), (1, -1, 1, 1, 1), 5,
                  age=0.1, noise=0.02)
    moves = moves_of(BY_CAMERA, ('shoulder', 'wrist'))
    bench.run(moves)
    found = estimate(moves.recording, SCENE)
    assert set(found) == {'shoulder'}, 'the camera does not see the wrist'
    calibration = calibration_of(found, SCENE, WIRED, 'camera')
    assert calibration.driver['shoulder_sign'] == 1
    near(calibration.simulation['shoulder_speed'], 0.3, 'shoulder')
    assert not {'sag', 'dead_zone'} & calibration.simulation.keys()


def start(pose=None, joints=('base',), step=None):
    """Return an arm and moves that have come to a step."""
    bench, moves = Bench(SimulationConfig()), moves_of(joints=joints)
    bench.arm.reset(pose or {})
    if step is not None:
        bench.run(moves, lambda moves: moves.step == step)
    return bench, moves


def test_arm_without_motion_or_stuck_or_turning_the_wrong_way_is_given_up():
    bench, moves = start(joints=JOINTS)
    bench.command = lambda motors: None
    with pytest.raises(CalibrationError, match='wrist: no motion in either direction'):
        bench.run(moves)
    assert bench.arm.time < 8.0
    bench, moves = start(step=3)
    stuck, command = bench.arm.joint_positions, bench.command
    bench.command = lambda motors: command(Motors())
    with pytest.raises(CalibrationError, match='base: no motion for 2 s'):
        bench.run(moves)
    assert np.abs(bench.arm.joint_positions - stuck).max() < 0.1
    bench, moves = start(step=3)
    bench._signs = -bench._signs
    with pytest.raises(CalibrationError, match='base: it turned the wrong way'):
        bench.run(moves)


def test_arm_that_may_hit_something_does_not_move():
    for joint in ('elbow', 'wrist'):
        bench, moves = start({'shoulder': 1.3, 'elbow': 0.6}, joints=(joint,))
        with pytest.raises(CalibrationError, match=f'{joint}: not free to move'):
            bench.run(moves)
        assert not any(any(each) for each in moves.recording.commands), joint
    bench, moves = start(joints=('shoulder',), step=3)
    moves._checker.collides = lambda poses: np.asarray(poses)[:, 1] < -0.2
    with pytest.raises(CalibrationError, match='shoulder -1: the arm is about to hit itself'):
        bench.run(moves)


def test_measurement_that_fails_ends_it():
    for age, offset, reason in (
            (0.6, 0.0, '0.60 s old; at most 0.5 s'), (-0.6, 0.0, '-0.60 s old'),
            (0.1, 0.0, 'went backward'), (0.0, math.nan, 'base: not measured any more'),
            (0.0, 2.3, 'base: measured at 2.*, beyond its limits')):
        bench, moves = start(step=3)
        now = bench.arm.time
        with pytest.raises(CalibrationError, match=reason):
            moves.update(now, now - age, bench.arm.joint_positions + offset)
    moves = moves_of(joints=('wrist',))
    with pytest.raises(CalibrationError, match='none of the joints is measured: wrist'):
        Bench(SimulationConfig(), noise=0.01).run(moves)


def test_arm_that_does_something_else_ends_it():
    # Another sender commands it, or a motor is locked out.
    for foreign, least, most in ((Motors(elbow=1), 0.3, 0.8), (Motors(), 0.8, 1.5)):
        bench, moves = start()
        bench.run(moves, lambda moves: moves.step == 3 and any(moves.recording.commands[-1]))
        accepted, begun = moves.accepted, bench.arm.time
        moves.accepted = lambda stamp, motors, accepted=accepted, foreign=foreign: accepted(
            stamp, foreign)
        with pytest.raises(CalibrationError, match='the arm does not follow: commanded was base'):
            bench.run(moves, lambda moves: False)
        assert least < bench.arm.time - begun < most, foreign


def test_nothing_is_estimated_of_too_few_moves():
    for step in (None, 3):
        assert estimate(start(step=step)[1].recording, SCENE) == {}

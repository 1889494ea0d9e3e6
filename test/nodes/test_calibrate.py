"""The program calibrate with the simulated arm as a process, in simulated time."""

import os
import pty
import sys

import pytest
from conftest import Peer
from sensor_msgs.msg import JointState

from vdl_ros.arm.calibration.calibration_file import read
from vdl_ros.arm.joints import JOINTS
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.nodes import calibrate
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import stop_request

# A watchdog of one and a half seconds of real time; below what is to be found.
TWIN = ('publish_clock:=true', 'real_time_factor:=2.0', 'command_timeout:=3.0',
        'speed_variation:=0.0',
        'base_speed:=0.42', 'dead_zone:=0.04', 'start_delay:=0.06', 'command_delay:=0.08')


@pytest.fixture
def sent(launch, peer):
    """Start the simulated arm; return the commands that it accepts."""
    arm = launch.node('sim_arm', *TWIN)
    received = peer.listen('arm/motors_sent')
    arm.wait_for(lambda: 'simulated arm ready' in arm.output, 'the arm')
    return received


@pytest.fixture
def person(monkeypatch):
    """Return a context manager that types a line into standard input, a terminal, until its end.

    Once is not enough: what is typed before the question is dropped.
    """
    master, slave = pty.openpty()
    monkeypatch.setattr('sys.stdin', open(slave))  # noqa: SIM115

    yield lambda line: Peer.saying(lambda: os.write(master, line), 0.2)
    sys.stdin.close()
    os.close(master)


def moving(sent):
    return bool(sent) and any((sent[-1].base, sent[-1].shoulder, sent[-1].elbow, sent[-1].wrist))


def test_the_simulated_arm_is_calibrated_with_consent(
        sent, run_here, person, peer, tmp_path, monkeypatch):
    path = tmp_path / 'arm.yaml'
    settings = f'output:={path}', 'use_sim_time:=true'
    with person(b'\n'):
        status, output = run_here(calibrate.main, *settings)
    assert status == 1
    assert 'calibrate: nobody agreed: the arm did not move, nothing written' in output
    with (tmp_path / 'stdin').open('w+') as stream, monkeypatch.context() as patch:
        patch.setattr('sys.stdin', stream)
        status, output = run_here(calibrate.main, *settings)
    assert status == 1
    assert 'standard input is not a terminal: --yes moves the arm without asking' in output
    count = len(sent)
    peer.until(lambda: len(sent) > count + 3, 'what was sent')
    assert not any(moving([each]) for each in sent)
    assert not path.exists()

    for _ in range(3):
        with person(b'y\n'):
            status, output = run_here(
                calibrate.main, 'joints:=base', f'output:={path}', 'use_sim_time:=true')
        # When the machine stands still it ends, or leaves out what it saw too little of.
        if status == 0 and 'dead_zone' in read(path).simulation:
            break
        assert status == 0 or 'the arm does not follow' in output, output
        assert path.exists() == (status == 0)
        path.unlink(missing_ok=True)
    assert status == 0, output
    assert 'Move it? [y/N]' in output
    assert '[1/4] base: which way it turns\n[2/4] bring the arm upright\n' in output
    assert '[4/4] estimate and write' in output
    assert output.rstrip().endswith(f'written: {path}')
    found = read(path)
    assert found.joints['base'].sign == -1
    assert found.simulation['base_speed'] == pytest.approx(0.42, rel=0.1)
    assert found.simulation['dead_zone'] == pytest.approx(0.04, rel=0.1)
    assert found.simulation['start_delay'] == pytest.approx(0.06, abs=0.02)
    # With the time constant.
    assert found.simulation['command_delay'] + 0.03 == pytest.approx(0.11, abs=0.02)


def test_a_driver_that_does_not_tell_its_signs_is_not_calibrated(
        peer, run_here, monkeypatch, tmp_path):
    monkeypatch.setattr(calibrate, 'ASK_S', 0.5)
    messages = {'arm/joint_states': JointState(name=list(JOINTS), position=[0.0] * len(JOINTS)),
                'arm/motors_sent': MotorCommand(sender='/nobody'),
                'arm/emergency_stop_state': EmergencyStopState()}
    publishers = {topic: qos.pub(peer.node, topic) for topic in messages}
    with peer.saying(lambda: [publishers[topic].publish(message)
                              for topic, message in messages.items()]):
        status, output = run_here(
            calibrate.main, 'joints:=base', f'output:={tmp_path / "arm.yaml"}')
    assert status == 1
    assert 'no answer of /nobody/get_parameters for 0.5 s' in output
    assert 'Move it?' not in output
    assert not list(tmp_path.iterdir())


def test_end_before_the_end_stops_motors_and_writes_nothing(launch, sent, peer, tmp_path):
    stop, other = map(peer.talk, ('arm/emergency_stop', 'arm/motors'))
    # Of a second calibration as of a person, but the driver does not tell of it.
    for reason in ('interrupted', '/calibrate switched the motors off', 'emergency stop'):
        for _ in range(3):
            process = launch(
                'ros2', 'run', 'vdl_ros', 'calibrate', '--yes', '--ros-args', '-p', 'joints:=base',
                '-p', f'output:={tmp_path / "arm.yaml"}', '-p', 'use_sim_time:=true')
            peer.until(lambda process=process: process.process.poll() is not None or (
                moving(sent) and '[3/4]' in process.output), 'a move')
            if process.process.poll() is not None:
                assert any(each in process.output for each in ('does not follow', 'stood still'))
                continue
            if reason == 'interrupted':
                process.interrupt()
            elif reason == 'emergency stop':
                stop.publish(stop_request('/test', 'a test'))
            # Again: a process that has not discovered the person yet does not hear of it. Not too
            # often: an arm that only the driver keeps off does not follow, another reason.
            peer.until(
                lambda process=process: process.process.poll() is not None, 'the end', every=0.5,
                say=lambda reason=reason: reason.startswith('/calibrate') and other.publish(
                    MotorCommand(sender='/calibrate')))
            # A machine that stands still ends it before, also between a command and its echo.
            if 'the process stood still' not in process.output:
                break
        assert process.process.returncode == 1
        assert process.output.splitlines()[-1] == (
            f'calibrate: {reason}: motors off, nothing written')
        peer.until(lambda: not moving(sent), 'motors off')
        assert [each.name for each in tmp_path.iterdir() if 'yaml' in each.name] == []


def test_invalid_settings_are_refused_in_one_line(refused):
    for parameter, reason in (
            ('output:=/nowhere/arm.yaml', "output: '/nowhere/arm.yaml' is not allowed: a file in"),
            ('joints:=base,elbo', "joints: 'elbo' is not allowed: some of base, shoulder"),
            ('reach:=0.1', 'reach: 0.1 is not allowed: at least 0.2, or 0')):
        assert reason in refused(calibrate.main, parameter)

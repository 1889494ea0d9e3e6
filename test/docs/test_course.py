"""The lessons of examples/course run as they are, and print what they promise."""

import re
import sys
from pathlib import Path

import pytest
from sensor_msgs.msg import JointState

from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos

pytestmark = pytest.mark.slow

COURSE = Path(__file__).resolve().parents[2] / 'examples' / 'course'


@pytest.fixture
def lesson(launch, tmp_path, monkeypatch):
    """Return a function that runs a lesson in an empty folder, and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name, *words):
        process = launch(sys.executable, str(COURSE / name), *words)
        assert process.wait(240.0) == 0, process.output
        assert 'Traceback' not in process.output
        return process.output
    return run


def test_the_environment_is_played_a_policy_learns_reaches_and_fails_under_attack(lesson):
    assert re.search(r'random motors: return -?\d+\.\d after \d', lesson('1_environment.py'))
    curve = [float(each) for each in re.findall(r'\d steps +([\d.]+) #', lesson('2_training.py'))]
    assert len(curve) >= 5
    assert curve[-1] > 3 * curve[0]
    first, attacked = map(int, re.findall(r'reached (\d+) of 10', lesson('4_policy.py')))
    assert first >= 8
    assert attacked <= 4


def test_a_node_turns_the_base_and_is_in_a_recording(lesson, launch, peer, tmp_path):
    launch('ros2', 'run', 'vdl_ros', 'sim_arm')
    recorder = launch('ros2', 'run', 'vdl_ros', 'recorder', '--ros-args', '-p', 'output:=bag')
    sent = peer.listen(MotorCommand, 'arm/motors_sent', qos.TOPICS['arm/motors_sent'])
    recorder.wait_for(lambda: 'recording /arm/joint_states' in recorder.output, 'the recorder')
    # A busy machine may take long.
    script = tmp_path / '3_node.py'
    script.write_text((COURSE / '3_node.py').read_text().replace(
        'LONGEST = 10.0', 'LONGEST = 200.0'))
    before, after = map(float, re.search(
        r'the base turned from (-?[\d.]+) to (-?[\d.]+) rad', lesson(script)).groups())
    assert after - before >= 0.29
    peer.until(lambda: sent and sent[-1].base == 0, 'motors off')
    recorder.interrupt()
    assert recorder.wait() == 0, recorder.output
    output = lesson('5_recording.py', str(tmp_path / 'bag'))
    assert re.search(r'^ +\d+ /arm/joint_states \(sensor_msgs/msg/JointState\)$', output, re.M)
    assert (tmp_path / 'joints.png').stat().st_size > 1000


def test_ctrl_c_ends_the_node_with_the_motors_off(launch, peer, tmp_path):
    lesson = tmp_path / 'lesson.py'
    lesson.write_text((COURSE / '3_node.py').read_text().replace(
        'TURN = 0.3', 'TURN = 9.0').replace('LONGEST = 10.0', 'LONGEST = 500.0'))
    launch('ros2', 'run', 'vdl_ros', 'sim_arm', '--ros-args', '-p', 'command_timeout:=5.0')
    sent = peer.listen(MotorCommand, 'arm/motors_sent', qos.TOPICS['arm/motors_sent'])
    states = peer.listen(JointState, 'arm/joint_states', qos.TOPICS['arm/joint_states'])
    peer.until(lambda: states, 'the arm')
    node = launch(sys.executable, str(lesson))
    peer.until(lambda: any(each.base == 1 for each in sent), 'it moves')
    node.interrupt()
    assert node.wait() == 0, node.output
    assert 'interrupted' in node.output
    assert 'Traceback' not in node.output
    peer.until(lambda: sent[-1].base == 0, 'motors off')

"""The episode recorder: keys in, a labeled bag for each episode out."""

import os
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from vdl_ros.arm.joints import JOINTS
from vdl_ros.bags.messages import decode
from vdl_ros.bags.reader import BagReader, EpisodeLabels, find_bags, read_labels
from vdl_ros.common.files import find_resource
from vdl_ros.msg import EmergencyStopState, MotorCommand
from vdl_ros.nodes import record_episodes
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.ros import qos
from vdl_ros.tools.export_dataset import main as export_dataset


class Arm:
    """Publishes joint states, whose base says their number, and what the motors do."""

    def __init__(self, peer, space=''):
        self._peer, self.count = peer, 0
        self.states, self.sent, self.stops = (
            peer.node.create_publisher(kind, f'{space}arm/{name}', qos.TOPICS[f'arm/{name}'])
            for kind, name in ((JointState, 'joint_states'), (MotorCommand, 'motors_sent'),
                               (EmergencyStopState, 'emergency_stop_state')))
        self.stops.publish(EmergencyStopState(sender='before'))

    def _say(self):
        self.count += 1
        message = JointState(name=list(JOINTS), position=[0.001 * self.count, 0.0, 0.0, 0.0, 0.0])
        command = MotorCommand(base=1)
        message.header.stamp = command.header.stamp = self._peer.node.get_clock().now().to_msg()
        self.sent.publish(command)
        self.states.publish(message)

    def until(self, condition, what):
        self._peer.until(condition, what, say=self._say)


def positions(bag):
    return [decode(each.data, each.type).position[0] for each in BagReader(bag)
            if each.topic == '/arm/joint_states']


@pytest.fixture
def script(monkeypatch):
    """Return a file whose lines are the keys."""
    source, sink = os.pipe()
    with os.fdopen(source) as keys, os.fdopen(sink, 'w', buffering=1) as script:
        monkeypatch.setattr('sys.stdin', keys)
        yield script


@pytest.fixture
def record(script, node_here, tmp_path):
    def start(*words):
        options = record_episodes.parser().parse_args(
            ['--output', str(tmp_path / 'demos'), *words])
        return node_here(lambda: record_episodes.RecordEpisodesNode(options))
    return start


def test_each_saved_episode_is_a_bag_with_its_labels(record, script, peer, tmp_path):
    output, arm = tmp_path / 'demos', Arm(peer)
    running = record('--task', 'reach the ball')

    def press(line, answer):
        before = running.output.count(answer)
        print(line, file=script)
        arm.until(lambda: running.output.count(answer) > before, answer)

    def publish():
        end = arm.count + 60
        arm.until(lambda: arm.count >= end, 'messages')

    arm.until(lambda: all(each.get_subscription_count() for each in (
        arm.states, arm.sent, arm.stops)), 'the recorder')
    press('y', 'no episode is being recorded')
    press('s', ': recording: ')
    publish()
    press('s', 'is being recorded; y or n')
    press('y', 'saved as a success')
    publish()
    # The services, which the buttons of the view call, do the same.
    states = peer.listen('record_episodes/state')
    assert peer.call(Trigger, 'record_episodes/start', Trigger.Request()).success
    answer = peer.call(Trigger, 'record_episodes/discard', Trigger.Request())
    assert (answer.success, answer.message) == (
        True, 'episode_0001: discarded; 1 episode is saved')
    assert not peer.call(Trigger, 'record_episodes/success', Trigger.Request()).success
    peer.until(lambda: states and 'no episode is being recorded' in states[-1].data, 'the state')
    press('t push the cube', 'task: push the cube')
    press('s', ': recording: ')
    publish()
    press('n', 'saved as a failure')
    press('s', ': recording: ')
    script.close()
    running.join()
    # A line was refused, see above.
    assert running.end() == 1, running.output

    bags = find_bags(output)
    assert [each.name for each in bags] == ['episode_0000', 'episode_0001']
    assert sorted(each.name for each in output.glob('[!.]*')) == [each.name for each in bags], (
        'an episode that was not saved leaves nothing')
    assert [read_labels(each) for each in bags] == [
        EpisodeLabels('reach the ball', True, 'owi535'),
        EpisodeLabels('push the cube', False, 'owi535')]
    first, second = (positions(each) for each in bags)
    # Each from its start to its end and not between; a busy machine may lose single messages.
    for each in (first, second):
        assert len(each) > 30
        assert (np.diff(each) > 0).all()
        assert np.median(np.diff(each)) == pytest.approx(0.001)
    assert second[0] - first[-1] > 0.05
    latched = [b'before' in bytes(each.data) for each in BagReader(bags[1])
               if each.topic == '/arm/emergency_stop_state']
    assert latched == [True], 'each episode has the state that was latched before it'

    data = tmp_path / 'data'
    assert export_dataset([str(output), '--no-images', '--resample', '--gap', '60',
                           '--output', str(data)]) == 0, running.output
    episodes = pq.read_table(data / 'meta/episodes/chunk-000/file-000.parquet').to_pylist()
    assert [each['tasks'] for each in episodes] == [['reach the ball'], ['push the cube']]


def test_the_first_line_of_a_script_waits_for_a_robot_in_its_namespace(
        record, script, peer, tmp_path):
    robot = tmp_path / 'left.yaml'
    robot.write_text(find_resource('config/robots/owi535.yaml').read_text() + 'namespace: left\n')
    running = record('--robot', str(robot))
    print('s', file=script)
    peer.until(lambda: '0 episodes are saved' in running.output, 'its start')
    arm = Arm(peer, 'left/')
    arm.until(lambda: ': recording: ' in running.output, 'an episode')
    print('y', file=script)
    arm.until(lambda: 'saved as a success' in running.output, 'a saved episode')
    print('s', file=script)
    arm.until(lambda: 'episode_0001: recording: ' in running.output, 'another episode')
    peer.node.destroy_publisher(arm.states)
    peer.until(lambda: running.node.silent, 'the loss of the robot')
    print('y', file=script)
    peer.until(lambda: 'nobody publishes left/arm/joint_states any more' in running.output,
               'that it is gone')
    script.close()
    running.join()
    assert running.end() == 0, running.output
    assert 'no episode is begun' not in running.output


def test_a_robot_is_silent_without_an_image_that_its_policy_sees():
    robot = SimpleNamespace(
        _contract=find_contract('owi535_camera'), resolve_topic_name=str,
        count_publishers=lambda name: name == 'arm/joint_states')
    assert record_episodes.RecordEpisodesNode.silent.fget(robot) == ['camera/image_raw']


def test_a_folder_with_something_else_is_refused(refused, tmp_path):
    (tmp_path / 'notes.txt').touch()
    (tmp_path / 'unsaved').mkdir()
    assert 'holds notes.txt, which is no episode; name another folder' in refused(
        lambda args: record_episodes.main(['--output', str(tmp_path), *args]))
    assert sorted(each.name for each in tmp_path.iterdir()) == ['notes.txt', 'unsaved']

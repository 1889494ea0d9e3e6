"""The recorder as a process: every received message is in the bag, however the recording ends."""


import pytest
import rclpy
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rosbags.highlevel import AnyReader
from std_msgs.msg import String

from vdl_ros.ros import qos


@pytest.fixture
def talker():
    """Return a node with a latched topic and some that are not, and a way to spin it."""
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node('talker', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    node.latched = node.create_publisher(String, 'state', qos.LATCHED)
    node.latched.publish(String(data='early'))
    node.reliable = node.create_publisher(String, 'talk', qos.REPORT)
    node.others = [node.create_publisher(String, f'talk_{number}', qos.REPORT)
                   for number in range(4)]
    node.sensor = node.create_publisher(String, 'sensor', qos.SENSOR)
    node.spin = lambda: executor.spin_once(timeout_sec=0.01)
    yield node
    executor.remove_node(node)
    node.destroy_node()
    rclpy.shutdown(context=context)


def record(launch, talker, output, *parameters):
    """Start a recorder and wait until it receives from the talker."""
    recorder = launch('ros2', 'run', 'vdl_ros', 'recorder', '--ros-args', '-p',
                      f'output:={output}', *parameters)

    def receives():
        talker.spin()
        return all(each.get_subscription_count() for each in (
            talker.reliable, talker.latched, *talker.others))

    recorder.wait_for(receives, 'the recorder')
    return recorder


def messages(output):
    with AnyReader([output]) as reader:
        found: dict[str, list[str]] = {}
        for connection, _, data in reader.messages():
            if connection.msgtype == 'std_msgs/msg/String':
                found.setdefault(connection.topic, []).append(
                    reader.deserialize(data, connection.msgtype).data)
        return found


def test_every_received_message_is_in_the_bag(launch, talker, tmp_path):
    recorder = record(launch, talker, tmp_path / 'bag')
    # As many on each topic as its queue holds: none is lost, however late they are taken.
    sent = [f'message {number}' for number in range(qos.REPORT.depth)]
    talks = [talker.reliable, *talker.others]
    for data in sent:
        for each in talks:
            each.publish(String(data=data))
    for each in (*talks, talker.latched):
        assert each.wait_for_all_acked(Duration(seconds=60))
    # They have arrived; those that are still queued must be recorded too.
    recorder.interrupt()
    assert recorder.wait() == 0, recorder.output
    found = messages(tmp_path / 'bag')
    assert found['/state'] == ['early'], 'a latched message from before is recorded'
    for each in talks:
        assert found[each.topic_name] == sent
    assert ' 0 dropped' in recorder.output


def test_only_matching_topics_are_recorded(launch, talker, tmp_path):
    recorder = launch('ros2', 'run', 'vdl_ros', 'recorder', '--ros-args', '-p',
                      f'output:={tmp_path / "bag"}', '-p', 'topics:=st*,/sensor')

    def receives():
        talker.spin()
        talker.sensor.publish(String(data='x'))
        return 'recording /state' in recorder.output and 'recording /sensor' in recorder.output

    recorder.wait_for(receives, 'both topics')
    assert talker.reliable.get_subscription_count() == 0
    recorder.interrupt()
    assert recorder.wait() == 0, recorder.output
    assert set(messages(tmp_path / 'bag')) <= {'/state', '/sensor'}


def test_a_full_disk_ends_the_recording_with_the_reason(launch, talker, tmp_path):
    # A file may not grow beyond 64 KiB: to the recorder it is as if the disk were full.
    recorder = launch('sh', '-c', 'ulimit -f 128; exec ros2 run vdl_ros recorder "$@"', 'sh',
                      '--ros-args', '-p', f'output:={tmp_path / "bag"}')

    def full():
        talker.reliable.publish(String(data='x' * 10_000))
        talker.spin()
        return recorder.process.poll() is not None

    recorder.wait_for(full, 'the end of the recorder')
    assert recorder.process.returncode == 3, recorder.output
    assert 'File too large: recording has ended' in recorder.output
    assert 'Traceback' not in recorder.output


def test_an_existing_bag_is_an_error(launch, tmp_path):
    (tmp_path / 'bag').mkdir()
    recorder = launch('ros2', 'run', 'vdl_ros', 'recorder', '--ros-args', '-p',
                      f'output:={tmp_path / "bag"}')
    assert recorder.wait() == 2
    assert f'{tmp_path / "bag"} exists; name another bag' in recorder.output


def test_the_topics_of_a_contract_are_recorded_and_no_others(launch, talker, tmp_path):
    (tmp_path / 'talking.yaml').write_text('''
rate: 1.0
topics: {talk: {topic: talk, type: std_msgs/msg/String, timeout: 1.0}}
features: [{name: a, from: talk, field: data, unit: '', low: 0, high: 1}]
actions: {topic: sensor, type: std_msgs/msg/String, parts: [
  {name: b, field: data, unit: '', levels: [0, 1]}]}
late: {action: stop, limit: 1.0}
reset: {none: true}
reward: {function: 'a:b'}
episode_steps: 1
''')
    recorder = launch('ros2', 'run', 'vdl_ros', 'recorder', '--ros-args', '-p',
                      f'output:={tmp_path / "bag"}', '-p', f'robot:={tmp_path}/talking.yaml')

    def is_recorded():
        talker.spin()
        talker.reliable.publish(String(data='one'))
        return talker.reliable.get_subscription_count() and talker.sensor.get_subscription_count()

    recorder.wait_for(is_recorded, 'the recorder')
    assert not talker.latched.get_subscription_count()
    talker.reliable.publish(String(data='last'))
    talker.reliable.wait_for_all_acked(Duration(seconds=60.0))
    recorder.interrupt()
    assert recorder.wait() == 0
    assert {*messages(tmp_path / 'bag')} == {'/talk'}

"""The node player: recorded messages are published again, commands of an arm excepted."""

import json
import math
import sys

import pytest
from geometry_msgs.msg import PointStamped
from mcap.writer import Writer
from rclpy.serialization import serialize_message
from std_msgs.msg import String

from vdl_ros.common.settings import as_dict
from vdl_ros.msg import Credit, EmergencyStopState, MotorCommand, Policy, Trajectory
from vdl_ros.nodes import player
from vdl_ros.rl.settings import TrainConfig
from vdl_ros.ros import qos
from vdl_ros.ros.bags.bag_writer import BagWriter

COUNT, SPACING_NS = 40, 20_000_000


@pytest.fixture
def bag(tmp_path):
    """Return a bag of 0.8 s: something latched, talk, commands."""
    with BagWriter(tmp_path / 'bag') as writer:
        state = writer.add_topic('/state', 'std_msgs/msg/String', [qos.LATCHED])
        talk = writer.add_topic('/talk', 'std_msgs/msg/String', [qos.REPORT])
        motors = writer.add_topic('/arm/motors', 'vdl_ros/msg/MotorCommand', [qos.COMMAND])
        stop_state = writer.add_topic(
            '/arm/emergency_stop_state', 'vdl_ros/msg/EmergencyStopState', [qos.LATCHED])
        target = writer.add_topic('/arm/target', 'geometry_msgs/msg/PointStamped', [qos.COMMAND])
        start = 5 * 10**9
        writer.write(stop_state, start, serialize_message(EmergencyStopState()))
        writer.write(state, start, serialize_message(String(data='latched')))
        for number in range(COUNT):
            stamp = start + number * SPACING_NS
            writer.write(talk, stamp, serialize_message(String(data=str(number))))
            writer.write(motors, stamp, serialize_message(MotorCommand(base=1)))
            writer.write(target, stamp, serialize_message(PointStamped()))
    return tmp_path / 'bag'


@pytest.fixture
def play(node_here):
    return lambda bag, *parameters: node_here(player.PlayerNode, f'bag:={bag}', *parameters)


def test_a_bag_is_played_as_recorded_without_commands(peer, launch, bag):
    talk, sent_at = [], []

    def receive(message, info):
        talk.append(int(message.data))
        sent_at.append(info['source_timestamp'])

    peer.node.create_subscription(String, 'talk', receive, qos.TOPICS['episodes'])
    state = peer.listen(String, 'state', qos.LATCHED)
    commands = peer.listen('arm/motors')
    targets = peer.listen('arm/target')
    process = launch.node('player', f'bag:={bag}', 'loop:=true', 'play_delay:=0.0')
    # A subscriber that is discovered late receives everything in the next round.
    peer.until(lambda: len(talk) >= 3 * COUNT and state, 'all messages, and some again')
    # In order, from the first that was received.
    assert talk == [number % COUNT for number in range(talk[0], talk[0] + len(talk))]
    # No faster than it was recorded: from end to end, as a first that is late is caught up with.
    ends = [at for number, at in zip(talk, sent_at, strict=True) if number == COUNT - 1]
    assert ends[1] - ends[0] >= (COUNT - 2) * SPACING_NS
    assert {each.data for each in state} == {'latched'}
    assert not commands
    assert not targets
    process.stop()


def test_commands_are_played_if_selected_and_with_the_clock_if_asked_for(peer, play, bag):
    motors = peer.listen(MotorCommand, 'arm/motors', qos.REPORT)
    clock = peer.listen('/clock')
    play(bag, 'play_topics:=arm/motors', 'play_rate:=4.0', 'loop:=true', 'publish_clock:=true')
    # A subscriber that is discovered late receives them in the second round.
    peer.until(lambda: len(motors) > 2 * COUNT and clock, 'the commands, and some again')
    assert {each.clock.sec for each in clock} == {5}


@pytest.mark.parametrize(('reason', 'namespace'), [
    ('the process stood still', '/'), ('emergency stop', '/'), ('emergency stop', '/elsewhere')])
def test_a_player_that_stood_still_or_is_stopped_commands_nothing_any_more(
        play, peer, bag, reason, namespace):
    running = play(bag, 'play_topics:=/arm/motors', 'loop:=true', f'__ns:={namespace}')
    if reason == 'emergency stop':
        peer.talk('arm/emergency_stop_state').publish(EmergencyStopState(engaged=True))
    else:
        running.node._standstill._went_on_at = math.inf
    running.join()
    assert running.end() == player.EXIT_FAILED
    assert f'{reason}: it commands nothing any more' in running.output


def test_the_player_ends_with_the_bag_and_refuses_what_is_none(run_here, refused, bag):
    status, output = run_here(player.main, f'bag:={bag}', 'play_delay:=0.0', 'play_rate:=10.0')
    assert status == 0
    assert f'{COUNT + 1} messages played, to the end of the bag' in output
    for parameters, reason in (
            (["bag:=''"], 'bag: none is given'), (['bag:=/nowhere/bag'], 'no bag is there'),
            ([f'bag:={bag}', 'relearn:=true'], 'holds no trajectories'),
            ([f'bag:={bag}', 'play_topics:=arm/motor,/arm/*'],
             "play_topics: 'arm/motor' is no topic of the bag: /"),
            ([f'bag:={bag}', 'play_topics:=/arm/*'],
             'play_topics: emergency_stop_state is not allowed with what moves: ')):
        assert reason in refused(player.main, *parameters)


def test_a_bag_of_a_stranger_imports_nothing_and_its_other_topics_are_played(run_here, tmp_path):
    path = tmp_path / 'foreign.mcap'
    with path.open('wb') as stream:
        writer = Writer(stream)
        writer.start(profile='ros2', library='a stranger')
        for topic, kind in (('/evil', 'this/msg/Zen'), ('/a b\x1b[2J', 'std_msgs/msg/String'),
                            ('/talk', 'std_msgs/msg/String')):
            schema = writer.register_schema(kind, 'ros2msg', b'string data')
            channel = writer.register_channel(topic, 'cdr', schema)
            writer.add_message(channel, 1, serialize_message(String(data='x')), 1)
        writer.finish()
    status, output = run_here(player.main, f'bag:={path}', 'play_delay:=0.0')
    assert status == 0, output
    assert "'/evil' is not played: 'this/msg/Zen': no such message" in output
    assert r"'/a b\x1b[2J' is not played: not a topic name of ROS" in output
    assert '1 messages played' in output
    assert 'this' not in sys.modules, 'a module was imported'
    assert '\x1b' not in output


def test_clocks_that_were_set_are_no_pauses_and_a_name_without_a_slash_is_a_topic(
        run_here, tmp_path):
    path = tmp_path / 'x.mcap'
    with path.open('wb') as stream:
        writer = Writer(stream, use_chunking=False)  # without an index, in the order of the file
        writer.start()
        schema = writer.register_schema('std_msgs/msg/String', 'ros2msg', b'')
        channel = writer.register_channel('talk', 'cdr', schema)
        for ns in (0, 10**18, 10**9):
            writer.add_message(channel, ns, serialize_message(String()), ns)
        writer.finish()
    status, output = run_here(player.main, f'bag:={path}', 'play_delay:=0.0')
    assert status == 0, output
    assert "1000000000.0 s from one message to the next, on 'talk', are skipped" in output
    assert "-999999999.0 s from one message to the next, on 'talk', are skipped" in output
    assert '3 messages played, to the end of the bag' in output


ACTORS = {11: 'a', 22: 'b'}
CREDIT = 3
# Numbers of the actors' trajectories in the bag; b's first one was not recorded.
RECORDED = [(11, 0), (11, 1), (22, 1), (11, 2), (22, 2), *((11, each) for each in range(3, 12))]


@pytest.fixture
def trajectories(tmp_path):
    """Return a bag of trajectories of two actors, and of something else."""
    with BagWriter(tmp_path / 'training') as writer:
        topic = writer.add_topic('/training/trajectories', 'vdl_ros/msg/Trajectory', [qos.STREAM])
        talk = writer.add_topic('/talk', 'std_msgs/msg/String', [qos.REPORT])
        for stamp, (start_id, sequence) in enumerate(RECORDED):
            writer.write(talk, stamp, serialize_message(String(data='x')))
            writer.write(topic, stamp, serialize_message(Trajectory(
                actor_id=ACTORS[start_id], start_id=start_id, sequence=sequence,
                policy_version=stamp, learner_id='of the recording')))
    return tmp_path / 'training'


class Learner:
    """A learner on the graph that keeps what it receives and gives credit when told."""

    def __init__(self, peer, relearn=True, learner_id='launch/1', last='trajectories'):
        self.received = peer.listen(Trajectory, last, qos.STREAM)
        self.publisher = qos.pub(peer.node, 'policy')
        self.config = json.dumps(as_dict(TrainConfig(
            max_in_flight=CREDIT, batch_size=1)) | {'relearn': relearn})
        self.learner_id = learner_id

    def publish(self, **used):
        self.publisher.publish(Policy(
            learner_id=self.learner_id, config=self.config, credits=[
                Credit(actor_id=name, start_id=start_id, used=used.get(name, 0))
                for start_id, name in ACTORS.items() if name in used]))


def test_a_learner_receives_the_trajectories_in_their_order_within_its_credit(
        peer, play, trajectories):
    running = play(trajectories, 'relearn:=true')
    stranger = Learner(peer, relearn=False, learner_id='other/1', last='elsewhere')
    stranger.publish()
    learner = Learner(peer)
    learner.publish()
    # a's first three and b's between them: a has no more credit.
    peer.until(lambda: len(learner.received) == 5, 'what the credit allows',
               say=learner.publish, every=0.5)
    learner.publish(a=1, b=2)
    peer.until(lambda: len(learner.received) == 6, 'one more')
    # From now on it uses each as it arrives.
    def use():
        learner.publish(a=sum(each.start_id == 11 for each in learner.received), b=2)

    peer.until(lambda: len(learner.received) == len(RECORDED), 'all', say=use)
    peer.until(lambda: not running.is_running, 'the end')
    assert running.end() == 0
    assert [each.policy_version for each in learner.received] == list(range(len(RECORDED)))
    assert {each.learner_id for each in learner.received} == {'launch/1'}
    for start_id in ACTORS:
        numbers = [each.sequence for each in learner.received if each.start_id == start_id]
        assert numbers == list(range(len(numbers)))
    # Stamped when it is sent, so that its age is the transport's.
    assert min(each.header.stamp.sec for each in learner.received) > 10**9
    assert f'{len(RECORDED)} trajectories played, to the end of the bag' in running.output
    assert '1 trajectories that its actors sent are not in the bag' in running.output


def test_the_player_ends_when_its_learner_does(peer, play, trajectories):
    for next_id, status, line in (
            ('launch/2', 1, 'the learner has started again and lacks trajectories: start anew'),
            (None, 0, '5 trajectories played\n')):
        running = play(trajectories, 'relearn:=true')
        learner = Learner(peer)
        learner.publish()
        peer.until(lambda learner=learner: len(learner.received) == 5, 'what the credit allows',
                   say=learner.publish, every=0.5)
        if next_id is None:
            peer.node.destroy_publisher(learner.publisher)
        else:
            learner.learner_id = next_id
            learner.publish()
        peer.until(lambda running=running: not running.is_running, 'the end')
        assert running.end() == status, line
        assert line in running.output
        peer.node.destroy_publisher(learner.publisher)


def test_a_trajectory_that_cannot_be_read_ends_the_player(run_here, tmp_path):
    with BagWriter(tmp_path / 'bag') as writer:
        topic = writer.add_topic('/trajectories', 'vdl_ros/msg/Trajectory', [qos.STREAM])
        whole = serialize_message(Trajectory(actor_id='a', start_id=11, learner_id='x'))
        writer.write(topic, 1, whole[:len(whole) // 2])
    status, output = run_here(player.main, f'bag:={tmp_path / "bag"}', 'relearn:=true')
    assert status == 2
    assert 'trajectory 0 cannot be read' in output
    assert 'Traceback' not in output

"""QoS: all pairs of publisher and subscription are compatible; latched topics latch."""

import ast
import itertools
import time
from pathlib import Path

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import (
    DurabilityPolicy,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
    qos_profile_sensor_data,
)
from sensor_msgs.msg import Image

import vdl_ros
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import MotorCommand, Policy
from vdl_ros.ros import parameters, qos, qos_overrides
from vdl_ros.ros.process_config import ProcessConfig

SOURCES = sorted(Path(vdl_ros.__path__[0]).rglob('*.py'))
KINDS = {'create_publisher': 'publishers', 'create_subscription': 'subscriptions'}


def endpoints():
    """
    Return (kind, topic, expression of the profile, place) of all publishers and subscriptions.

    Those of qos_overrides take the profile by the topic's name.

    Topics with a fixed name: what is left is a measurement between two ends of one class.
    """
    found = []
    for path in SOURCES:
        if 'msg' in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            kind = KINDS.get(node.func.attr)
            if kind is None:
                continue
            if ast.unparse(node.func.value) == 'qos_overrides':
                topic = ast.literal_eval(node.args[2])
                assert topic in qos_overrides.OVERRIDABLE
                newest = kind == 'subscriptions' and qos.subscription(topic) is qos.LATEST
                expression = 'qos.subscription(%r)' if newest else 'qos.TOPICS[%r]'
                found.append((kind, topic, expression % topic, f'{path.name}:{node.lineno}'))
            elif isinstance(node.args[1], ast.Constant):
                topic, profile = node.args[1], node.args[2 if kind == 'publishers' else 3]
                found.append((kind, topic.value, ast.unparse(profile),
                              f'{path.name}:{node.lineno}'))
    return found


ENDPOINTS = endpoints()


def profile(expression):
    return eval(expression, {'qos': qos})


def compatible(publisher, subscription):
    # Liveliness is the system default on both sides, which is a warning.
    return qos_check_compatible(publisher, subscription)[0] != QoSCompatibility.ERROR


def test_publishers_and_subscriptions_are_found_in_the_sources():
    assert {topic for _, topic, _, _ in ENDPOINTS} >= {'trajectories', 'policy', 'episodes'}


@pytest.mark.parametrize('endpoint', ENDPOINTS, ids=' '.join)
def test_every_profile_is_taken_by_the_name_of_its_topic(endpoint):
    kind, topic, expression, _ = endpoint
    allowed = {f"qos.TOPICS['{topic}']"}
    if kind == 'subscriptions' and qos.subscription(topic) is not qos.TOPICS[topic]:
        newest = f"qos.subscription('{topic}')"
        # TOPICS[...] is for subscriptions that need every message of a sensor, and for the driver,
        # which needs the newest command only.
        allowed = {newest} if qos.TOPICS[topic] is qos.STOP else {newest, *allowed}
    assert expression in allowed
    assert isinstance(profile(expression), QoSProfile)


def test_every_pair_is_compatible():
    pairs = [(one, other) for one, other in itertools.product(ENDPOINTS, ENDPOINTS)
             if (one[0], other[0]) == ('publishers', 'subscriptions') and one[1] == other[1]]
    assert len(pairs) >= 2
    for one, other in pairs:
        assert compatible(profile(one[2]), profile(other[2])), (one, other)


@pytest.mark.parametrize('topic', sorted(qos.TOPICS))
@pytest.mark.parametrize('subscription', [
    QoSProfile(depth=10), qos_profile_sensor_data,
    QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
               durability=DurabilityPolicy.VOLATILE)], ids=['default', 'sensor', 'echo'])
def test_tools_can_subscribe(topic, subscription):
    assert compatible(qos.TOPICS[topic], subscription)


def test_profiles_have_the_policies_of_their_names():
    assert qos.STREAM.reliability == qos.REPORT.reliability == ReliabilityPolicy.RELIABLE
    assert qos.LATEST.reliability == ReliabilityPolicy.BEST_EFFORT
    assert qos.SENSOR.reliability == ReliabilityPolicy.RELIABLE
    assert qos.LATCHED.durability == DurabilityPolicy.TRANSIENT_LOCAL
    assert (qos.LATCHED.depth, qos.LATCHED.reliability) == (1, ReliabilityPolicy.RELIABLE)
    # The check can fail.
    assert not compatible(qos.LATEST, qos.STREAM)
    assert not compatible(qos.STREAM, qos.LATCHED)


def test_subscriptions_keep_the_newest_of_sensors_and_all_of_stops():
    assert qos.subscription('camera/image_raw') is qos.LATEST
    assert qos.subscription('policy') is qos.LATCHED
    assert qos.subscription('arm/emergency_stop') is qos.LATCHED_ALL
    assert qos.LATCHED_ALL.depth > qos.STOP.depth == 1
    assert compatible(qos.SENSOR, qos.LATEST)
    assert compatible(qos.STOP, qos.LATCHED_ALL)


def test_only_the_driver_takes_the_newest_command_of_all_alone():
    places = {place.split(':')[0] for kind, topic, expression, place in ENDPOINTS
              if (kind, topic) == ('subscriptions', 'arm/motors') and 'TOPICS' in expression}
    assert places == {'arm_topics.py'}


def test_a_persons_command_is_not_hidden_by_the_next_one_of_a_program(peer):
    received = peer.listen(MotorCommand, 'arm/motors', qos.subscription('arm/motors'))
    person, program = (peer.talk(MotorCommand, 'arm/motors', qos.TOPICS['arm/motors'])
                       for _ in range(2))
    # Before the node looks at either.
    person.publish(MotorCommand(sender='/teleop'))
    assert person.wait_for_all_acked()
    program.publish(MotorCommand(sender='/arm_controller', base=1))
    peer.until(lambda: received and received[-1].base == 1, 'the last')
    assert [each.sender for each in received] == ['/teleop', '/arm_controller']


def test_a_late_subscriber_gets_the_latest_message_of_a_latched_topic():
    context = rclpy.Context()
    rclpy.init(context=context)
    executor = SingleThreadedExecutor(context=context)
    try:
        early = rclpy.create_node('early', context=context)
        publisher = early.create_publisher(Policy, 'policy', qos.TOPICS['policy'])
        for version in range(3):
            publisher.publish(Policy(version=version))
        late = rclpy.create_node('late', context=context)
        received = []
        late.create_subscription(
            Policy, 'policy', lambda message: received.append(message.version),
            qos.TOPICS['policy'])
        executor.add_node(early)
        executor.add_node(late)
        deadline = time.monotonic() + 120
        while not received and time.monotonic() < deadline:
            executor.spin_once(timeout_sec=0.1)
        assert received == [2]
    finally:
        executor.shutdown()
        rclpy.shutdown(context=context)


def node_with(context, *overrides):
    """Return a node in a namespace with these parameters, after its settings are taken."""
    node = rclpy.create_node('node', context=context, namespace='left', cli_args=[
        '--ros-args', *(word for each in overrides for word in ('-p', each))])
    parameters.declare(node, parameters.given(node, ProcessConfig), ProcessConfig)
    return node


@pytest.fixture
def ros_context():
    context = rclpy.Context()
    rclpy.init(context=context)
    yield context
    rclpy.shutdown(context=context)


def test_the_user_overrides_depth_and_reliability_of_sensor_topics(ros_context):
    image = 'qos_overrides./left/camera/image_raw'
    node = node_with(ros_context, f'{image}.publisher.depth:=7', 'executor:=single',
                     f'{image}.subscription.reliability:=reliable')
    publisher = qos_overrides.create_publisher(node, Image, 'camera/image_raw')
    subscription = qos_overrides.create_subscription(node, Image, 'camera/image_raw', print)
    assert publisher.qos_profile.depth == 7
    assert subscription.qos_profile.reliability == ReliabilityPolicy.RELIABLE
    assert node.get_parameter(f'{image}.subscription.depth').value == 1
    # The profiles of others stay as they are.
    assert (qos.SENSOR.depth, qos.LATEST.reliability) == (5, ReliabilityPolicy.BEST_EFFORT)


@pytest.mark.parametrize(('name', 'error'), [
    ('/left/arm/motors.publisher.depth:=7', "depth' is not allowed: .* one of /left/arm/joint_s"),
    ('/left/episodes.publisher.durability:=volatile', "durability' is not allowed"),
    ('/left/episodes.publisher.depth:=0', 'publisher.depth: 0 is not allowed: a whole number'),
    ('/left/episodes.publisher.reliability:=x', "reliability: 'x' is not allowed: one of 'rel"),
    ('depth:=1', "depth' is not allowed"),
])
def test_other_overrides_are_refused(ros_context, name, error):
    with pytest.raises(SettingError, match=rf'qos_overrides\..*{error}'):
        node_with(ros_context, f'qos_overrides.{name}')

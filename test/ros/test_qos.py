"""QoS: all pairs of publisher and subscription are compatible; latched topics latch."""

import ast
import itertools
from pathlib import Path

import pytest
import rclpy
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
from vdl_ros.ros import parameters, qos
from vdl_ros.ros.node_settings import ProcessConfig

SOURCES = sorted(Path(vdl_ros.__path__[0]).rglob('*.py'))
KINDS = {'create_publisher': 'publishers', 'create_subscription': 'subscriptions'}


@pytest.fixture(scope='module')
def endpoints():
    """
    Return (kind, topic, expression of the profile, place) of all publishers and subscriptions.

    Those of qos.create_publisher and qos.create_subscription take the profile by the topic's
    name. Topics with a fixed name: what is left is a measurement between two ends of one class.
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
            if ast.unparse(node.func.value) == 'qos':
                topic = ast.literal_eval(node.args[2])
                assert topic in qos.OVERRIDABLE
                newest = kind == 'subscriptions' and qos.subscription(topic) is qos.LATEST
                expression = 'qos.subscription(%r)' if newest else 'qos.TOPICS[%r]'
                found.append((kind, topic, expression % topic, f'{path.name}:{node.lineno}'))
            elif isinstance(node.args[1], ast.Constant):
                topic, profile = node.args[1], node.args[2 if kind == 'publishers' else 3]
                found.append((kind, topic.value, ast.unparse(profile),
                              f'{path.name}:{node.lineno}'))
    assert {topic for _, topic, _, _ in found} >= {'trajectories', 'policy', 'episodes'}
    return found


def profile(expression):
    return eval(expression, {'qos': qos})


def compatible(publisher, subscription):
    # Liveliness is the system default on both sides, which is a warning.
    return qos_check_compatible(publisher, subscription)[0] != QoSCompatibility.ERROR


def test_every_profile_is_taken_by_the_name_of_its_topic(endpoints):
    for kind, topic, expression, place in endpoints:
        allowed = {f"qos.TOPICS['{topic}']"}
        if kind == 'subscriptions' and qos.subscription(topic) is not qos.TOPICS[topic]:
            newest = f"qos.subscription('{topic}')"
            # TOPICS[...] is for subscriptions that need every message of a sensor, and for the
            # driver, which needs the newest command only.
            allowed = {newest} if qos.TOPICS[topic] is qos.STOP else {newest, *allowed}
        assert expression in allowed, place
        assert isinstance(profile(expression), QoSProfile), place
    takers = {place.split(':')[0] for kind, topic, expression, place in endpoints
              if (kind, topic) == ('subscriptions', 'arm/motors') and 'TOPICS' in expression}
    assert takers == {'arm_topics.py'}, 'only the driver takes the newest command of all alone'


def test_every_pair_is_compatible_and_tools_can_subscribe(endpoints):
    pairs = [(one, other) for one, other in itertools.product(endpoints, endpoints)
             if (one[0], other[0]) == ('publishers', 'subscriptions') and one[1] == other[1]]
    assert len(pairs) >= 2
    for one, other in pairs:
        assert compatible(profile(one[2]), profile(other[2])), (one, other)
    echo = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
                      durability=DurabilityPolicy.VOLATILE)
    for topic, subscription in itertools.product(
            qos.TOPICS, (QoSProfile(depth=10), qos_profile_sensor_data, echo)):
        assert compatible(qos.TOPICS[topic], subscription), (topic, subscription)
    # The check can fail.
    assert not compatible(qos.LATEST, qos.STREAM)
    assert not compatible(qos.STREAM, qos.LATCHED)


def test_profiles_have_the_policies_of_their_names():
    assert qos.STREAM.reliability == qos.REPORT.reliability == ReliabilityPolicy.RELIABLE
    assert qos.LATEST.reliability == ReliabilityPolicy.BEST_EFFORT
    assert qos.SENSOR.reliability == ReliabilityPolicy.RELIABLE
    assert qos.LATCHED.durability == DurabilityPolicy.TRANSIENT_LOCAL
    assert (qos.LATCHED.depth, qos.LATCHED.reliability) == (1, ReliabilityPolicy.RELIABLE)
    # Subscriptions keep the newest of sensors and all of stops.
    assert qos.subscription('camera/image_raw') is qos.LATEST
    assert qos.subscription('policy') is qos.LATCHED
    assert qos.subscription('arm/emergency_stop') is qos.LATCHED_ALL
    assert qos.LATCHED_ALL.depth > qos.STOP.depth == 1
    assert compatible(qos.SENSOR, qos.LATEST)
    assert compatible(qos.STOP, qos.LATCHED_ALL)


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


def test_a_late_subscriber_gets_the_latest_message_of_a_latched_topic(peer):
    publisher = peer.node.create_publisher(Policy, 'policy', qos.TOPICS['policy'])
    for version in range(3):
        publisher.publish(Policy(version=version))
    received = peer.listen(Policy, 'policy', qos.TOPICS['policy'])
    peer.until(lambda: received, 'the policy')
    assert [each.version for each in received] == [2]


@pytest.fixture
def make_node():
    """Return a function: a node in a namespace with these parameters, its settings taken."""
    context = rclpy.Context()
    rclpy.init(context=context)

    def make(*overrides):
        node = rclpy.create_node('node', context=context, namespace='left', cli_args=[
            '--ros-args', *(word for each in overrides for word in ('-p', each))])
        parameters.declare(node, parameters.given(node, ProcessConfig), ProcessConfig)
        return node

    yield make
    rclpy.shutdown(context=context)


def test_the_user_overrides_depth_and_reliability_of_sensor_topics(make_node):
    image = 'qos_overrides./left/camera/image_raw'
    node = make_node(f'{image}.publisher.depth:=7', 'executor:=single',
                     f'{image}.subscription.reliability:=reliable')
    publisher = qos.create_publisher(node, Image, 'camera/image_raw')
    subscription = qos.create_subscription(node, Image, 'camera/image_raw', print)
    assert publisher.qos_profile.depth == 7
    assert subscription.qos_profile.reliability == ReliabilityPolicy.RELIABLE
    assert node.get_parameter(f'{image}.subscription.depth').value == 1
    # The profiles of others stay as they are.
    assert (qos.SENSOR.depth, qos.LATEST.reliability) == (5, ReliabilityPolicy.BEST_EFFORT)


def test_other_overrides_are_refused(make_node):
    for name, error in (
            ('/left/arm/motors.publisher.depth:=7',
             "depth' is not allowed: .* one of /left/arm/joint_s"),
            ('/left/episodes.publisher.depth:=0',
             'publisher.depth: 0 is not allowed: a whole number'),
            ('/left/episodes.publisher.reliability:=x',
             "reliability: 'x' is not allowed: one of 'rel"),
            ('depth:=1', "depth' is not allowed")):
        with pytest.raises(SettingError, match=rf'qos_overrides\..*{error}'):
            make_node(f'qos_overrides.{name}')

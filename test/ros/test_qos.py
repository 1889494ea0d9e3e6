"""QoS: all pairs of publisher and subscription are compatible; latched topics latch."""

import ast
from pathlib import Path

import pytest
from rclpy.qos import (
    DurabilityPolicy,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
    qos_profile_sensor_data,
)

import vdl_ros
from vdl_ros.common.settings import SettingError
from vdl_ros.msg import MotorCommand
from vdl_ros.ros import parameters, qos
from vdl_ros.ros.node_settings import ProcessConfig
from vdl_ros.ros.training.world_actors import WorldAgent

SOURCES = sorted(Path(vdl_ros.__path__[0]).rglob('*.py'))


def compatible(publisher, subscription):
    # Liveliness is the system default on both sides, which is a warning.
    return qos_check_compatible(publisher, subscription)[0] != QoSCompatibility.ERROR


def calls(*names):
    """Yield (place, call) of the calls of these methods in the package."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    and node.func.attr in names):
                yield path.name, node


def test_topics_with_a_fixed_name_take_type_and_profile_from_the_table():
    exceptions = set()
    for place, call in calls('pub', 'sub'):
        first = int(ast.unparse(call.func.value) == 'qos')
        topic, profile = call.args[first], call.args[first + 2:]
        if ast.unparse(call.func.value) == 're' or not isinstance(topic, ast.Constant):
            continue
        assert topic.value in qos.TABLE, place
        if profile:
            exceptions.add((place, topic.value, ast.unparse(*profile)))
    # The driver needs the newest command only, who stops the arm none of before, and a relay the
    # policies of all trainings.
    assert exceptions == {('arm_topics.py', 'arm/motors', 'qos.MOTORS'),
                          ('policy_relay.py', 'policy', 'qos.LATCHED_OF_ALL'),
                          ('stop.py', 'arm/motors_sent', 'qos.COMMAND')}
    for place, call in calls('create_publisher', 'create_subscription'):
        assert not isinstance(call.args[1], ast.Constant), place


def test_publishers_and_subscriptions_match_and_tools_can_subscribe():
    echo = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE,
                      durability=DurabilityPolicy.VOLATILE)
    for name, topic in qos.TABLE.items():
        assert topic.message.__name__ == topic.type.rpartition('/')[2], 'its type is installed'
        for profile in (qos.subscription(name), topic.offered, QoSProfile(depth=10),
                        qos_profile_sensor_data, echo):
            assert compatible(topic.offered, profile), (name, profile)
    # The check can fail.
    assert not compatible(qos.LATEST, qos.STREAM)
    assert not compatible(qos.STREAM, qos.LATCHED)


def test_subscriptions_queue_the_stops_of_all_publishers():
    stop = qos.subscription('arm/emergency_stop')
    assert stop.durability == DurabilityPolicy.TRANSIENT_LOCAL
    assert stop.depth > qos.TOPICS['arm/emergency_stop'].depth == 1


def test_a_persons_command_is_not_hidden_by_the_next_one_of_a_program(peer):
    received = peer.listen(MotorCommand, 'arm/motors', qos.subscription('arm/motors'))
    person, program = (peer.talk('arm/motors') for _ in range(2))
    # Before the node looks at either.
    person.publish(MotorCommand(sender='/teleop'))
    assert person.wait_for_all_acked()
    program.publish(MotorCommand(sender='/arm_controller', base=1))
    peer.until(lambda: received and received[-1].base == 1, 'the last')
    assert [each.sender for each in received] == ['/teleop', '/arm_controller']


def test_the_user_overrides_depth_and_reliability_of_sensor_topics(make_node):
    image = 'qos_overrides./left/camera/image_raw'
    node = make_node(f'{image}.publisher.depth:=7', f'{image}.subscription.reliability:=reliable',
                     'qos_overrides./left/red/episodes.publisher.depth:=3')
    parameters.declare(node, parameters.given(node, ProcessConfig), ProcessConfig)
    publisher = qos.pub(node, 'camera/image_raw')
    subscription = qos.sub(node, 'camera/image_raw', print)
    assert publisher.qos_profile.depth == 7
    assert WorldAgent(node, 'red', 'actor', 10.0)._episodes.qos_profile.depth == 3
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
            parameters.given(make_node(f'qos_overrides.{name}'), ProcessConfig)

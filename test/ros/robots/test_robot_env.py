"""Robots on real topics: what an agent gets, what stops them, and which contracts are refused."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import rclpy
import yaml
from builtin_interfaces.msg import Time
from geometry_msgs.msg import TwistStamped
from rclpy.node import Node
from refusals import refusal
from robot_contract import GOOD
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Joy
from std_msgs.msg import Bool

from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import MotorCommand
from vdl_ros.robots.confirmation import Confirmation
from vdl_ros.robots.contract_files import find_contract, read_contract
from vdl_ros.robots.takeover import Takeover
from vdl_ros.robots.task import make_task
from vdl_ros.ros import qos
from vdl_ros.ros.arm.arm_topics import ROBOT_ENVIRONMENT
from vdl_ros.ros.messages.images import to_compressed_image
from vdl_ros.ros.robots.robot_graph import RobotGraph
from vdl_ros.ros.robots.robot_topics import RobotInterfaces, RobotTopics


def lost(step):
    return bool(step[4]['is_lost'][0])


def test_an_agent_acts_on_topics_until_the_robot_is_silent_stopped_or_left(peer, robot, act):
    """One robot for all: it takes seconds to start."""
    agent = act({'episode_steps': 10_000, 'stops': [
        {'topic': 'stop', 'type': 'std_msgs/msg/Bool', 'field': 'data'}]})
    robot.stop(False)
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: len(agent.steps) > 5, 'steps')
        info = agent.steps[-1][4]
        # Commands come back as speeds: 0.5, of a range from -1 to 1.
        # The factor of the reward in the contract is 2.
        peer.until(lambda: (step := agent.steps[-1])[0][0, 0] == 0.5
                   and step[1][0] == pytest.approx(1.0), 'the speed that is commanded')
        assert 0.0 <= info['observation_age'][0] < 0.5
        thinking, processing, action_lag, observation_lag = info['reaction_time'][0]
        assert min(thinking, processing, observation_lag) >= 0.0
        assert action_lag == 0.0  # no echo
        # Silence.
        robot.is_silent = True
        robot.until_still()
        count = len(agent.steps)
        robot.is_silent = False
        peer.until(lambda: len(agent.steps) > count + 3, 'steps after the silence')
        # The step into the silence is the one that ends with the next episode.
        assert any(map(lost, agent.steps[count - 1:]))
        # A stop, and its release.
        robot.stop()
        robot.until_still()
        count = len(agent.steps)
        robot.stop(False)
        peer.until(lambda: len(agent.steps) > count + 3, 'steps after the stop')
        assert any(map(lost, agent.steps[count - 1:]))
        # The process ends in the middle of a step.
        robot.is_silent = True
        robot.until_still()
        agent.end()
        assert isinstance(agent.error, EnvStopped)


def test_a_robot_is_left_at_rest_although_its_policy_hangs_when_the_process_ends(
        peer, robot, act, printed):
    agent = act({'late': {'action': 'hold', 'limit': 60.0}})
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: robot.commands[-3:] == [0.5] * 3, 'motion')
        agent.thinks = 1e6
        peer.until(lambda: robot.commands[-40:] == [0.5] * 40, 'holding')
        agent.stop.set()
        peer.until(lambda: robot.commands[-1] == 0.0, 'the neutral action')
        robot.until_still()
        assert agent.thread.is_alive()
        assert 'the agent gave no action' not in printed()


def test_an_agent_sees_the_images_of_a_topic_and_a_damaged_one_leaves_the_one_before(
        peer, robot, act, printed):
    agent = act({'episode_steps': 10_000, 'images': [{
        'name': 'eye', 'topic': 'eye', 'type': 'sensor_msgs/msg/CompressedImage',
        'size': [48, 36], 'timeout': 60.0}]})
    eye = peer.node.create_publisher(CompressedImage, 'eye', qos.SENSOR)

    def show(level, length=None):
        message = to_compressed_image(
            np.full((480, 640, 3), level, np.uint8), peer.node.get_clock().now().to_msg())
        message.data = message.data[:length]
        eye.publish(message)

    def sees(level):
        image, numbers = agent.env.single_observation_space.split(agent.steps[-1][0][0])
        assert (image.shape, numbers.shape) == ((36, 48, 3), (5,))
        return len(agent.steps) > 5 and np.all(image == level)

    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: 'robot/mine waits: no message on eye yet' in printed(), 'the reason')
        assert agent.steps == []
        with peer.saying(lambda: show(50), every=0.05):
            robot.confirm(lambda: agent.steps and sees(50), 'the image')
        peer.until(lambda: 'eye refused: compressed image: ' in printed(), 'the refusal',
                   say=lambda: show(90, 1500), every=0.05)
        count = len(agent.steps)
        robot.confirm(lambda: len(agent.steps) > count + 3, 'steps')
        assert sees(50)
        with peer.saying(lambda: show(200), every=0.05):
            robot.confirm(lambda: sees(200), 'the next image')
        assert np.all(agent.env.render()[0] == np.full((36, 48, 3), 200))


@pytest.mark.parametrize('profile', [qos.LATCHED, qos.LATEST])
def test_a_stop_counts_with_each_profile_and_a_second_one_is_a_stop(
        peer, robot, act, profile):
    agent = act({'episode_steps': 10_000, 'stops': [
        {'topic': 'button', 'type': 'std_msgs/msg/Bool', 'field': 'data'}]})
    with peer.saying(robot.measure, every=0.01):
        button, pressed = peer.node.create_publisher(Bool, 'button', profile), Bool()

        def say():
            button.publish(pressed)

        peer.until(lambda: len(agent.steps) > 3, 'steps', say=say)
        pressed.data = True
        peer.until(lambda: robot.commands[-1] == 0.0, 'the stop', say=say)
        pressed.data, count = False, len(agent.steps)
        peer.until(lambda: len(agent.steps) > count + 3, 'steps after the stop', say=say)
        count = len(robot.commands)
        peer.node.create_publisher(Bool, 'button', profile)
        peer.until(lambda: 0.0 in robot.commands[count:], 'two buttons are a stop', say=say)


def test_a_person_takes_over_by_a_joystick_and_gives_back_by_letting_go(
        peer, robot, act, monkeypatch):
    agent = act({'takeovers': True, 'episode_steps': 10_000, 'takeover': {
        'topic': 'joy', 'type': 'sensor_msgs/msg/Joy', 'held': 'buttons', 'held_index': 0,
        'parts': [{'name': 'forward', 'field': 'axes', 'index': 1, 'scale': 0.5}]}})
    joy = peer.node.create_publisher(Joy, 'joy', qos.LATEST)

    def push(button):
        joy.publish(Joy(axes=[0.0, -0.5], buttons=[button]))

    def is_persons(action):
        info = agent.steps[-1][4]
        return info['intervened'][0] and info['executed_actions'][0, 0] == action

    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: len(agent.steps) > 5 and robot.commands[-1] == 0.5, 'the agent',
                   say=lambda: push(0))
        assert not any(each[4]['intervened'][0] for each in agent.steps)
        count = len(agent.steps)
        peer.until(lambda: is_persons(-0.25), 'the person', say=lambda: push(1))
        assert robot.commands[-1] == -0.25
        # Silent, then given back.
        peer.until(lambda: robot.commands[-1] == 0.0 and is_persons(0.0), 'a neutral action')
        peer.until(lambda: robot.commands[-1] == 0.5, 'the agent again')
        # Let go, with the stick where it was: at once, not after the time-out.
        monkeypatch.setattr(Takeover, 'is_left', lambda *_: False)
        peer.until(lambda: is_persons(-0.25), 'the person', say=lambda: push(1))
        peer.until(lambda: is_persons(0.0), 'a neutral action', say=lambda: push(0))
        peer.until(lambda: robot.commands[-1] == 0.5, 'the agent again', say=lambda: push(0))
        assert not any(map(lost, agent.steps[count:]))


def test_a_robot_stands_still_when_its_agent_does_not_come_back_and_when_it_is_closed(
        peer, robot, act, printed):
    agent = act({'late': {'action': 'hold', 'limit': 0.3}})
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: robot.commands and robot.commands[-1] == 0.5, 'a command')
        agent.thinks = 60.0
        peer.until(lambda: robot.commands[-1] == 0.0, 'a neutral action')
        count = len(robot.commands)
        peer.until(lambda: len(robot.commands) > count + 5, 'more neutral actions')
        assert {*robot.commands[count:]} == {0.0}
        agent.end()
        # Another one waits for a person, who may have switched off what nobody heard.
        other = act()
        count = len(robot.commands)
        peer.until(lambda: 'the environment before has ended' in printed(), 'the reason')
        assert 0.5 not in robot.commands[count:]
        robot.confirm(lambda: 0.5 in robot.commands[count:], 'a command')
        other.end()
        robot.until_still()


def test_nothing_moves_without_who_acts_and_after_that_before_a_person_confirms(
        peer, robot, act, printed):
    program = SimpleNamespace(
        has_acted=False, rests=False, reason='no program', problem=lambda at_rest: program.reason)
    agent = act({'episode_steps': 10_000, 'program': program})
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: 'robot/mine waits: no program' in printed(), 'the reason')
        assert not any(robot.commands)
        program.reason = ''
        peer.until(lambda: 0.5 in robot.commands, 'motion, unasked')
        # Whatever the action is meanwhile.
        program.rests = True
        peer.until(lambda: robot.commands[-1] == 0.0, 'the neutral action')
        program.rests = False
        peer.until(lambda: robot.commands[-1] == 0.5, 'motion')
        program.has_acted, program.reason = True, 'it is gone'
        robot.until_still()
        program.reason = ''
        peer.until(lambda: 'waits: it is gone; ros2 run vdl_ros confirm' in printed(), 'the line')
        count = len(agent.steps)
        robot.until_still()
        assert len(agent.steps) == count
        robot.confirm(lambda: len(agent.steps) > count + 3, 'steps')


def test_an_environment_that_has_failed_leaves_the_robot_to_the_next_one(peer, robot, act):
    failed = act({'reward': {'function': 'rewards:speed', 'arguments': {'factor': 'none'}}})
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: failed.error is not None, 'the error')
        failed.end()
        assert 'TypeError' in str(failed.error)
        other = act()
        robot.confirm(lambda: len(other.steps) > 3, 'steps')


def test_an_environment_waits_until_the_robot_receives_its_actions(peer, robot, act, printed):
    commands = []
    # It subscribes to its own actions, because they name a sender.
    agent = act({'actions': {
        'topic': 'cmd', 'type': 'geometry_msgs/msg/TwistStamped', 'sender': 'header.frame_id',
        'parts': [{**GOOD['actions']['parts'][0], 'field': 'twist.linear.x'}]}})
    # What records them moves nothing.
    recorder = rclpy.create_node('record_episodes', context=peer.node.context)
    recorder.create_subscription(TwistStamped, 'cmd', commands.append, qos.COMMAND)
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: 'robot/mine waits: nobody receives cmd' in printed(), 'the reason')
        assert agent.steps == []
        peer.node.create_subscription(TwistStamped, 'cmd', commands.append, qos.COMMAND)
        peer.until(lambda: 0.5 in [each.twist.linear.x for each in commands], 'its action')
    recorder.destroy_node()


def test_what_moves_the_arm_and_what_only_switches_it_off():
    arm = RobotInterfaces(find_contract('owi535'))
    for command, moves, is_neutral in (
            (MotorCommand(sender='/teleop', base=1), True, False),
            (MotorCommand(sender='/teleop', gripper=1), True, False),  # not of the action
            (MotorCommand(sender='/teleop', lamp=1), False, False),
            (MotorCommand(sender='/teleop'), False, True)):
        assert (arm.moves(command), arm.is_neutral(command)) == (moves, is_neutral), command


@pytest.mark.parametrize('is_discovered', [True, False])
def test_an_environment_waits_for_another_one_of_the_same_robot(
        peer, robot, act, is_discovered, monkeypatch):
    if not is_discovered:
        # DDS may take seconds.
        for kind in 'publishers', 'subscriptions':
            monkeypatch.setattr(Node, f'get_{kind}_info_by_topic', lambda *_: [])
        monkeypatch.setattr(RobotTopics, 'is_received', lambda _: True)
    first = act()
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: len(first.steps) > 3, 'steps')
        second = act(action=-0.5)
        count = len(first.steps)
        peer.until(lambda: len(first.steps) > count + 10, 'steps of the first')
        assert second.steps == []
        first.over.set()
        first.thread.join()
        first.env.close()
        # Nor does it begin when the first one ends, before a person lets it.
        robot.confirm(lambda: len(second.steps) > 3, 'steps of the second')


def test_an_environment_of_several_robots_waits_for_another_one_of_any(
        peer, robots, act, monkeypatch):
    # Of another launch.
    monkeypatch.setattr(RobotGraph, '_confirmation', lambda *_: Confirmation())

    def measure():
        for robot in robots:
            robot.measure()

    first = act({'namespace': 'robot_1'})
    with peer.saying(measure, every=0.01):
        peer.until(lambda: len(first.steps) > 3, 'steps')
        act({'namespace': 'robot_{}', 'copies': 2}, action=-0.5)
        count = len(first.steps)
        peer.until(lambda: len(first.steps) > count + 60, 'steps of the first')
    assert -0.5 not in robots[1].commands


def test_names_that_are_not_of_this_host_are_refused(make):
    speed, odom = GOOD['features'][0], GOOD['topics']['odom']
    for changes, reason in (
            ({'topics': {'odom': {**odom, 'type': 'nav_msgs/msg/Odometri'}}},
             "mine.yaml: topics: odom: type: 'nav_msgs/msg/Odometri': no such message is inst"),
            ({'features': [{**speed, 'field': 'twist.twist.linear.v'}]},
             "features[0]: field: 'twist.twist.linear.v' is not allowed: Vector3 has x, y, z"),
            ({'features': [{**speed, 'field': 'twist.twist.linear'}]},
             'is geometry_msgs/Vector3, which is not allowed: a number'),
            ({'features': [{**speed, 'field': 'twist.covariance', 'key': 'a'}]},
             "key: 'a' is not allowed: Odometry has no field \"name\""),
            ({'features': [{**speed, 'convert': 'yaw'}]}, 'a quaternion, for yaw'),
            ({'stops': [{'topic': 'stop', 'type': 'std_msgs/msg/Bool', 'field': 'on'}]},
             "stops[0]: field: 'on' is not allowed: Bool has data"),
            ({'reset': {'service': {'name': 'reset', 'type': 'std_srvs/srv/Reset'}}},
             "reset: service: type: 'std_srvs/srv/Reset': no such service is installed here"),
            ({'reset': {'service': {'name': 'reset', 'type': 'std_srvs/srv/SetBool',
                                    'request': {'data': 'yes'}}}},
             "request: data: 'yes' is not allowed"),
            ({'reset': {'service': {'name': 'reset', 'type': 'std_srvs/srv/Trigger',
                                    'success': 'ok'}}},
             "success: 'ok' is not allowed: Trigger.Response has success, message")):
        assert reason in refusal(EnvError, make, **changes), changes


def test_settings_that_come_over_the_graph_choose_among_contracts_of_this_host(make):
    make()
    for config, reason in (
            ({'env_id': 'robot/other'}, "env_id: no robot 'robot/other' on this host"),
            ({'num_envs': 2}, 'num_envs: 2 is not allowed with robot/mine: 1'),
            ({'env_kwargs': '{"a": 1}'}, 'env_kwargs:'),
            *(({name: 0.5}, f'{name}: 0.5 is not allowed with env_id')
              for name in ('realtime_fps', 'observation_delay', 'random_observation_delay',
                           'action_delay', 'random_action_delay', 'observe_last_actions'))):
        settings = EnvConfig(**{'env_id': 'robot/mine', 'num_envs': 1, **config})
        assert reason in refusal(EnvError, factory.make, settings, 1)


def test_a_simulated_clock_that_stands_still_jumps_or_is_one_of_two_stops_the_robot(
        peer, robot, act, printed):
    clock = peer.node.create_publisher(Clock, '/clock', qos.SENSOR)
    agent, time = act({'clock': 'simulated'}), [100.0]

    def go_on(by=0.02):
        time[0] += by
        stamp = Time(sec=int(time[0]), nanosec=int(time[0] % 1.0 * 1e9))
        robot.measure(stamp)
        clock.publish(Clock(clock=stamp))

    def until_moving():
        count = len(robot.commands)
        peer.until(lambda: 0.5 in robot.commands[count:], 'motion', say=go_on, every=0.005)

    peer.until(lambda: 'waits: no message on /clock yet' in printed(), 'the line')
    until_moving()
    # Twenty ticks per second of the simulation, which is faster than real time.
    steps, begun = len(agent.steps), time[0]
    peer.until(lambda: len(agent.steps) >= steps + 30, 'steps', say=go_on, every=0.005)
    assert 20.0 * (time[0] - begun) + 1 >= 30
    robot.until_still()
    until_moving()
    # The same time again and again.
    robot.until_still(say=lambda: go_on(0.0))
    until_moving()
    time[0] = 10.0
    go_on()
    robot.until_still()
    until_moving()
    assert any(map(lost, agent.steps))
    other = peer.node.create_publisher(Clock, '/clock', qos.SENSOR)
    robot.until_still(say=go_on)
    assert '/clock: 2 publishers, whose times cannot be told apart' in printed()
    peer.node.destroy_publisher(other)
    until_moving()


def test_remappings_of_the_process_reach_the_robots_but_for_the_name_of_its_node(tmp_path):
    rclpy.init(args=['--ros-args', '-r', '__node:=actor', '-r', '__ns:=/left',
                     '-r', '/clock:=clock', '-r', 'odom:=base/odom',
                     '-r', 'pressed:=held', '-r', 'held:=pressed'])
    (tmp_path / 'rewards.py').write_text('def speed(before, after, factor):\n    return 0.0\n')
    (tmp_path / 'mine.yaml').write_text(yaml.safe_dump(GOOD | {
        'clock': 'simulated',
        'stops': [{'topic': 'pressed', 'type': 'std_msgs/msg/Bool', 'field': 'data'}]}))
    button = rclpy.create_node('button')
    button.create_publisher(Bool, 'pressed', qos.LATCHED)
    contract = read_contract(tmp_path / 'mine.yaml')
    graph = RobotGraph(contract, RobotInterfaces(contract), [make_task(contract)], '/left',
                       threading.Event())
    try:
        assert {each.topic_name for each in graph._node.subscriptions} == {
            '/left/base/odom', '/left/clock', '/left/held'}
        assert graph._node.get_fully_qualified_name().startswith(f'/left/{ROBOT_ENVIRONMENT}')
    finally:
        graph.close()
        rclpy.shutdown()


def test_measurements_with_stamps_of_another_time_are_refused_unless_told_otherwise(
        peer, robot, act):
    """As by a host whose clock is wrong, or when a system clock was set."""
    wrong, count = [Time(sec=1), Time(sec=2**31 - 1)], [0]
    agent = act()

    def measure_wrongly():
        count[0] += 1
        robot.measure(wrong[count[0] % 2])

    peer.until(lambda: count[0] > 100, 'messages', say=measure_wrongly, every=0.01)
    assert agent.steps == []
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: len(agent.steps) > 3, 'steps')
    agent.end()
    other = act({'topics': {'odom': {**GOOD['topics']['odom'], 'stamped': False}}})
    with peer.saying(measure_wrongly, every=0.01):
        robot.confirm(lambda: len(other.steps) > 3, 'steps')

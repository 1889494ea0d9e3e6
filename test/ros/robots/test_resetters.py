"""Resets by a service, a trajectory and a person, on real topics."""

import threading
from types import SimpleNamespace

import numpy as np
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import GoalResponse
from robot_contract import GOOD
from std_srvs.srv import SetBool
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.nodes import confirm
from vdl_ros.robots.contract import TrajectoryReset
from vdl_ros.ros import qos
from vdl_ros.ros.robots import resetters
from vdl_ros.ros.robots.robot_graph import RobotGraph
from vdl_ros.srv import Confirm


def test_a_service_that_refuses_is_called_again_until_it_resets(peer, robot, act):
    answers, calls = iter([False, True]), []

    def on_call(request, response):
        calls.append(request.data)
        response.success = next(answers, True)
        return response

    peer.node.create_service(SetBool, 'put_back', on_call)
    agent = act({'reset': {'service': {
        'name': 'put_back', 'type': 'std_srvs/srv/SetBool', 'request': {'data': True},
        'success': 'success'}}})
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: len(agent.steps) > 3, 'steps')
    assert calls[:2] == [True, True]


TRAJECTORY = {'reset': {'trajectory': {
    'topic': 'path', 'positions': {'speed': 0.2}, 'seconds': 2.0, 'tolerance': 0.05,
    'timeout': 60.0}}}


def test_a_trajectory_resets_a_robot_when_it_is_at_its_end_and_ends_with_the_environment(
        peer, robot, act):
    paths = peer.listen(JointTrajectory, 'path', qos.COMMAND)
    agent = act(TRAJECTORY)
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: paths, 'a trajectory')
        agent.end()
        peer.until(lambda: not paths[-1].points, 'a trajectory without points')
        agent = act(TRAJECTORY)
        robot.confirm(lambda: paths[-1].points, 'a trajectory')
        assert agent.steps == []
        # As if it moved to where the trajectory ends.
        peer.until(lambda: len(agent.steps) > 3, 'steps', say=lambda: robot.commands.append(0.2))
    assert paths[0].joint_names == ['speed']
    assert list(paths[0].points[0].positions) == [0.2]
    assert paths[0].points[0].time_from_start.sec == 2


def test_a_goal_that_is_taken_when_the_environment_ends_is_canceled(
        peer, robot, act, monkeypatch):
    closing, canceled, stop_all = threading.Event(), [], RobotGraph._stop_all

    def on_stop(graph):
        stop_all(graph)
        if graph._is_closed:
            closing.set()

    monkeypatch.setattr(RobotGraph, '_stop_all', on_stop)
    agent = act({'reset': {'trajectory': {
        **TRAJECTORY['reset']['trajectory'], 'topic': '', 'action': 'follow'}}})
    ending = threading.Thread(target=agent.end)

    def on_goal(_):
        ending.start()
        closing.wait()
        return GoalResponse.ACCEPT

    def on_cancel(_):
        canceled.append(1)
        return CancelResponse.ACCEPT

    server = ActionServer(
        peer.node, FollowJointTrajectory, 'follow', lambda goal: None, goal_callback=on_goal,
        handle_accepted_callback=lambda goal: None, cancel_callback=on_cancel)
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: canceled, 'the goal is canceled')
    ending.join()
    server.destroy()


def test_a_robot_that_takes_positions_is_stopped_in_its_reset_by_where_it_is(peer, robot, act):
    paths = peer.listen(JointTrajectory, 'path', qos.COMMAND)
    robot.commands.append(0.1)
    agent = act(TRAJECTORY | {'actions': GOOD['actions'] | {'parts': [
        GOOD['actions']['parts'][0] | {'low': -0.1, 'high': 0.1, 'change_of': 'speed'}]}})
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: paths, 'a trajectory')
        agent.end()
        peer.until(lambda: len(paths) > 1, 'another one')
    assert (list(paths[-1].points[0].positions), paths[-1].points[0].time_from_start.sec) == (
        [0.1], 0)


def test_wrong_measurements_move_no_robot_whose_reset_ends(monkeypatch):
    paths = []
    monkeypatch.setattr(resetters.qos, 'pub', lambda *_, **__: SimpleNamespace(
        publish=paths.append, get_subscription_count=lambda: 1))
    resetter = resetters._ByTopic(
        TrajectoryReset(**TRAJECTORY['reset']['trajectory']), None, str, holds=True)
    resetter.begin(np.random.default_rng())
    for speed in (0.0, 0.02, 0.04, -1.5, -1.5, -1.5, -1.5):
        assert not resetter.is_done({'speed': speed})
    resetter.cancel()
    assert list(paths[-1].points[0].positions) == [0.01]


def test_a_person_confirms_each_reset(peer, robot, act, monkeypatch, printed):
    monkeypatch.setattr(confirm, 'process_age', lambda: 0.0)
    # A machine that stands still loses no episode, which would need another confirmation.
    agent = act({
        'reset': {'confirmation': 'put the cube back'}, 'late': {'action': 'stop', 'limit': 60.0},
        'topics': {'odom': {**GOOD['topics']['odom'], 'timeout': 60.0}}})
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: robot.commands, 'the neutral action before the reset')
        assert agent.steps == []
        person = confirm.ConfirmNode()
        assert person.run(threading.Event()) == 0, printed()
        person.destroy_node()
        assert 'the robot goes on' in printed()
        peer.until(lambda: len(agent.steps) > 3, 'steps')
        # Nobody waits for it now.
        peer.until(lambda: not peer.call(
            Confirm, 'robot/confirm', Confirm.Request()).success, 'a refusal')

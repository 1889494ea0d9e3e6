"""The action arm/follow_joint_trajectory, by a client in a process of its own."""

import os
import re
import signal
import sys
from functools import partial

import pytest
from control_msgs.action import FollowJointTrajectory
from control_msgs.msg import JointTolerance
from rclpy.action import ActionClient
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from vdl_ros.nodes.arm_controller import ArmControllerNode
from vdl_ros.nodes.sim_arm import SimArmNode
from vdl_ros.ros.arm import trajectory_action
from vdl_ros.ros.arm.trajectory_action import ACTION
from vdl_ros.ros.messages.joint_messages import trajectory_message

Result = FollowJointTrajectory.Result
SUCCEEDED, CANCELED, ABORTED = 4, 5, 6
# Sends a goal, the base far away, and waits for its end. Again, if the server has not discovered
# it, or if a machine that stood still ended the goal.
CLIENT = '''
import rclpy
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionClient
from rclpy.duration import Duration
from vdl_ros.ros.messages.joint_messages import trajectory_message

rclpy.init()
node = rclpy.create_node('client')
client = ActionClient(node, FollowJointTrajectory, 'arm/follow_joint_trajectory')
client.wait_for_server()
goal = FollowJointTrajectory.Goal(trajectory=trajectory_message(['base'], [[2.0]], [60.0]))
while True:
    sent = client.send_goal_async(goal, feedback_callback=lambda _: print('feedback', flush=True))
    rclpy.spin_until_future_complete(node, sent, timeout_sec=10.0)
    if sent.done() and sent.result().accepted:
        rclpy.spin_until_future_complete(node, sent.result().get_result_async())
    else:
        rclpy.spin_once(node, timeout_sec=0.2)
'''


class Arm:
    """The twin with its controller, and a client of the action."""

    def __init__(self, peer):
        self.peer = peer
        self.sent = peer.listen('arm/motors_sent')
        self.status = peer.listen('arm/trajectory_status')
        self.states = peer.listen('arm/joint_states')
        self.client = ActionClient(peer.node, FollowJointTrajectory, ACTION)
        peer.until(lambda: self.client.server_is_ready() and self.states and self.status,
                   'the arm')
        # Given up as long as controller and twin have not found each other.
        while self.go(['base'], [[0.1]], [0.5]).status != SUCCEEDED:
            pass

    def ask(self, request, what):
        """Return the answer to a request; again if the server has not discovered this client."""
        futures = []
        self.peer.until(lambda: any(each.done() for each in futures), what, every=10.0,
                        say=lambda: futures.append(request()))
        return next(each.result() for each in futures if each.done())

    def send(self, names, points, times, start=None, **parts):
        """Return the handle of an accepted goal, and its feedback."""
        feedback = []
        trajectory = trajectory_message(names, points, times)
        if start is not None:
            trajectory.header.stamp = start
        handle = self.ask(lambda: self.client.send_goal_async(
            FollowJointTrajectory.Goal(trajectory=trajectory, **parts),
            feedback_callback=lambda message: feedback.append(message.feedback)), 'a goal')
        assert handle.accepted
        return handle, feedback

    def end(self, handle):
        """Return status and result of a goal."""
        return self.ask(handle.get_result_async, 'the result')

    def undisturbed(self, attempt):
        """Return the end of an attempt's goal; again if a machine that stood still ended it."""
        while True:
            ended = attempt()
            if not re.search('stood still|stopped meanwhile|no update for|no measurement|'
                             'client of the goal is gone', ended.result.error_string):
                return ended

    def go(self, *trajectory, **parts):
        return self.undisturbed(lambda: self.end(self.send(*trajectory, **parts)[0]))

    @property
    def base(self):
        return self.states[-1].position[self.states[-1].name.index('base')]

    def turn(self, target):
        """Return a goal that turns the base; another one, if a standstill ended the first."""
        while True:
            handle, _ = self.send(['base'], [[target]], [60.0])
            ended = handle.get_result_async()
            self.peer.until(lambda ended=ended: self.sent[-1].base or ended.done(), 'a turn')
            if not ended.done():
                return handle

    def until_turning(self):
        self.peer.until(lambda: self.sent[-1].base and self.status[-1].state == 'running',
                        'the base turns')

    def until_off(self):
        self.peer.until(lambda: not self.sent[-1].base, 'motors off')


@pytest.fixture
def arm(node_here, peer):
    node_here(SimArmNode)
    controller = node_here(ArmControllerNode).node
    arm = Arm(peer)
    arm.action = controller._action
    return arm


def test_goals_end_as_they_should_and_never_leave_a_motor_on(
        arm, launch, peer, tmp_path, monkeypatch):
    # Reached, with feedback.
    feedback = []

    def reach():
        handle, received = arm.send(['base', 'elbow'], [[0.6, 0.2]], [1.0])
        feedback[:] = [received]
        return arm.end(handle)

    ended = arm.undisturbed(reach)
    assert (ended.status, ended.result.error_code) == (SUCCEEDED, Result.SUCCESSFUL)
    # Its joint states may arrive later.
    peer.until(lambda: abs(arm.base - 0.6) < 0.06, 'the base there')
    last = feedback[0][-1]
    assert {*last.joint_names} == {'base', 'elbow'}
    assert abs(last.desired.positions[0] - last.actual.positions[0]
               - last.error.positions[0]) < 1e-9
    # Not as exactly as this goal demands.
    ended = arm.go(['base'], [[0.2]], [1.0],
                   goal_tolerance=[JointTolerance(name='base', position=1e-9)])
    assert (ended.status, ended.result.error_code) == (ABORTED, Result.GOAL_TOLERANCE_VIOLATED)
    assert '1e-09 rad are allowed' in ended.result.error_string
    # Refused, with the reason.
    for points, tolerances, reason in (
            ([], [], 'no point'), ([[0.0]], [JointTolerance(name='x')], "'x': no such joint"),
            ([[0.0]], [JointTolerance(name='base', velocity=1.0)], 'veloc')):
        ended = arm.go(['base'], points, [1.0] * len(points), path_tolerance=tolerances)
        assert (ended.status, ended.result.error_code) == (ABORTED, Result.INVALID_GOAL), reason
        assert reason in ended.result.error_string

    # Cancelled while it moves.
    def cancel(handle):
        arm.ask(handle.cancel_goal_async, 'a cancel')
        return arm.end(handle)

    assert arm.undisturbed(lambda: cancel(arm.turn(2.0))).status == CANCELED
    arm.until_off()
    peer.until(lambda: arm.status[-1].reason == 'cancelled by the client', 'the reason')
    # Cancelled before its time has come: it never starts.
    later = (peer.node.get_clock().now() + Duration(seconds=3600)).to_msg()
    assert arm.undisturbed(lambda: cancel(
        arm.send(['base'], [[-1.0]], [1.0], start=later)[0])).status == CANCELED
    # Replaced by a goal, and that by a trajectory on the topic.
    talk = peer.talk('arm/joint_trajectory')

    def replace():
        first = arm.turn(2.0)
        arm.send(['base'], [[-2.0]], [60.0])
        return arm.end(first)

    def replace_by_topic():
        handle = arm.turn(-2.0)
        talk.publish(trajectory_message(['base'], [[arm.base]], [0.5]))
        return arm.end(handle)

    # Of a client that leaves while another one lives: when the goal waits, or when it runs.
    def pass_by():
        before = arm.action._departed
        receiver = peer.node.create_subscription(
            FollowJointTrajectory.Impl.FeedbackMessage, f'{ACTION}/_action/feedback',
            lambda _: None, 10)
        peer.until(lambda: arm.action._feedback.get_subscription_count() == 2, 'a receiver')
        peer.node.destroy_subscription(receiver)
        peer.until(lambda: arm.action._departed > before, 'its end')

    def leave_before():
        with monkeypatch.context() as patch:
            patch.setattr(trajectory_action, '_QUEUED_S', 60.0)
            pass_by()
            return arm.end(arm.send(['base'], [[2.0]], [60.0])[0])

    def leave():
        handle = arm.turn(-2.0)
        pass_by()
        return arm.end(handle)

    def until_gone(attempt):
        while 'client of the goal is gone' not in (reason := attempt().result.error_string):
            assert re.search('stood still|stopped meanwhile|no ', reason)

    until_gone(leave_before)
    until_gone(leave)
    for attempt, reason in (
            (replace, 'replaced by another goal'),
            (replace_by_topic, 'replaced by a trajectory on arm/joint_trajectory')):
        ended = arm.undisturbed(attempt)
        assert (ended.status, ended.result.error_string) == (ABORTED, reason)
    # While a client does not take feedback reliably, or none reaches it: nothing would tell that
    # it is gone.
    for profile in (QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT),
                    QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)):
        arm.go(['base'], [[0.0]], [1.0])
        deaf = peer.node.create_subscription(
            FollowJointTrajectory.Impl.FeedbackMessage, f'{ACTION}/_action/feedback',
            lambda _: None, profile)
        ended = arm.undisturbed(lambda: arm.end(arm.turn(2.0)))
        assert 'not take feedback reliably' in ended.result.error_string, profile
        peer.node.destroy_subscription(deaf)
    # Of a client that is stopped, and is then killed, while DDS still knows it.
    program = tmp_path / 'client.py'
    program.write_text(CLIENT)

    def lose(client, number):
        """Return whether the goal ended because its client was gone."""
        client.wait_for(lambda: 'feedback' in client.output, 'feedback')
        arm.until_turning()
        os.kill(client.process.pid, number)
        peer.until(lambda: arm.status[-1].state == 'aborted', 'the end')
        reason = arm.status[-1].reason
        arm.until_off()
        # It sends another one.
        os.kill(client.process.pid, signal.SIGCONT)
        return 'the client of the goal is gone' in reason

    client = launch(sys.executable, str(program))
    while not lose(client, signal.SIGSTOP):
        pass
    while not lose(client, signal.SIGKILL):
        client.wait()
        client = launch(sys.executable, str(program))
    # As long as DDS knows it nothing would tell whether the client of another goal lives.
    refused = arm.ask(lambda: arm.client.send_goal_async(FollowJointTrajectory.Goal(
        trajectory=trajectory_message(['base'], [[0.0]], [1.0]))), 'an answer')
    assert not refused.accepted


def test_a_refused_goal_is_not_kept_and_a_bug_ends_no_process(node_here, peer, monkeypatch):
    monkeypatch.setattr(trajectory_action, '_RESULT_S', 1)
    running = node_here(ArmControllerNode)
    action = running.node._action
    kept = action._server._goal_handles
    client = ActionClient(peer.node, FollowJointTrajectory, ACTION)
    peer.until(client.server_is_ready, 'the action')
    goal = FollowJointTrajectory.Goal(trajectory=trajectory_message(['x' * 10**6], [[0.0]], [1.0]))
    send = partial(client.send_goal_async, goal)
    peer.until(lambda: kept, 'a goal', say=send, every=10.0)
    assert next(iter(kept.values())).request is None
    peer.until(lambda: not kept, 'no goal')
    monkeypatch.setattr(action, '_is_busy', lambda: {}['a bug'])
    peer.until(lambda: f"{ACTION} refused: KeyError: 'a bug'" in running.output, 'a line',
               say=send, every=10.0)
    peer.until(lambda: not kept, 'no goal')
    assert running.is_running


def test_each_client_of_a_remapped_action_has_to_take_feedback(peer):
    rules = [word for name in ('send_goal', 'get_result', 'cancel_goal', 'feedback', 'status')
             for word in ('-r', f'{ACTION}/_action/{name}:=other/_action/{name}')]
    node = Node('controller', context=peer.node.context, cli_args=['--ros-args', *rules])
    action = trajectory_action.TrajectoryAction(node, *[None] * 5)
    ActionClient(peer.node, FollowJointTrajectory, 'other')
    peer.until(action._is_watched, 'the client')
    peer.node.create_client(FollowJointTrajectory.Impl.SendGoalService, 'other/_action/send_goal')
    peer.until(lambda: not action._is_watched(), 'the client without feedback')
    node.destroy_node()

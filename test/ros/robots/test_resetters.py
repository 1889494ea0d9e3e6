"""Resets by a service, a trajectory and a person, on real topics."""

from robot_contract import GOOD
from std_srvs.srv import SetBool, Trigger
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.ros import qos


def test_a_service_that_refuses_is_called_again_until_it_resets(peer, robot, make, act):
    answers, calls = iter([False, True]), []

    def on_call(request, response):
        calls.append(request.data)
        response.success = next(answers, True)
        return response

    peer.node.create_service(SetBool, 'put_back', on_call)
    agent = act(make(reset={'service': {
        'name': 'put_back', 'type': 'std_srvs/srv/SetBool', 'request': {'data': True},
        'success': 'success'}}))
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: len(agent.steps) > 3, 'steps')
    assert calls[:2] == [True, True]


TRAJECTORY = {'trajectory': {'topic': 'path', 'positions': {'speed': 0.2}, 'seconds': 2.0,
                             'tolerance': 0.05, 'timeout': 60.0}}


def test_a_trajectory_resets_a_robot_when_it_is_at_its_end(peer, robot, make, act):
    paths = []

    def follow(message):
        paths.append(message)
        robot.commands.append(0.2)  # as if it moved to where the trajectory ends

    peer.node.create_subscription(
        JointTrajectory, 'path', follow, qos.TOPICS['arm/joint_trajectory'])
    agent = act(make(reset=TRAJECTORY))
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: len(agent.steps) > 3, 'steps')
    assert paths[0].joint_names == ['speed']
    assert list(paths[0].points[0].positions) == [0.2]
    assert paths[0].points[0].time_from_start.sec == 2


def test_the_end_of_the_environment_stops_a_trajectory(peer, robot, make, act):
    paths = peer.listen(JointTrajectory, 'path', qos.TOPICS['arm/joint_trajectory'])
    agent = act(make(reset=TRAJECTORY))
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: paths, 'a trajectory')
        agent.end(make.stop)
        agent.env.close()
        peer.until(lambda: not paths[-1].points, 'a trajectory without points')


def test_a_person_confirms_each_reset(peer, robot, make, act, launch):
    # A machine that stands still loses no episode, which would need another confirmation.
    agent = act(make(
        reset={'confirmation': 'put the cube back'}, late={'action': 'stop', 'limit': 60.0},
        topics={'odom': {**GOOD['topics']['odom'], 'timeout': 60.0}}))
    with peer.saying(robot.measure, every=0.01):
        peer.until(lambda: robot.commands, 'the neutral action before the reset')
        assert agent.steps == []
        person = launch('ros2', 'run', 'vdl_ros', 'confirm')
        assert person.wait() == 0, person.output
        assert 'the episode begins' in person.output
        peer.until(lambda: len(agent.steps) > 3, 'steps')
        # Nobody waits for it now.
        peer.until(lambda: not peer.call(
            Trigger, 'robot/confirm', Trigger.Request()).success, 'a refusal')

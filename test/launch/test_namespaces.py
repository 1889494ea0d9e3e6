"""Two arms in one domain: a launch file includes arm.launch.py twice, each in a namespace."""

import pytest
from trajectory_msgs.msg import JointTrajectory

from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import trajectory_message

pytestmark = pytest.mark.slow
INCLUDING = '''
from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import ExecuteProcess, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource


def generate_launch_description():
    file = get_package_share_directory('vdl_ros') + '/launch/arm.launch.py'

    def arm(namespace):
        return IncludeLaunchDescription(PythonLaunchDescriptionSource(file), launch_arguments={
            'namespace': namespace, 'camera': 'none', 'view': 'false', 'log_level': 'debug',
            'params_file': 'PARAMS'}.items())

    return LaunchDescription([arm('left'), arm('cell/right'), ExecuteProcess(
        cmd=['printenv', 'RCUTILS_CONSOLE_OUTPUT_FORMAT'], output='screen')])
'''
PARAMETERS = '''
/**: {ros__parameters: {start_pose: base=-0.5}}
/left/sim_arm: {ros__parameters: {start_pose: base=0.5}}
'''


def test_two_arms_in_two_namespaces_move_by_themselves(launch, peer, tmp_path, monkeypatch):
    monkeypatch.setenv('RCUTILS_CONSOLE_OUTPUT_FORMAT', 'of the user {message}')
    params = tmp_path / 'params.yaml'
    params.write_text(PARAMETERS)
    file = tmp_path / 'two.launch.py'
    file.write_text(INCLUDING.replace('PARAMS', str(params)))
    process = launch('ros2', 'launch', str(file))

    def listen(topic):
        """Return what arrives from either arm."""
        found = qos.TABLE[topic]
        return [peer.listen(found.message, f'{each}/{topic.lstrip("/")}', found.offered)
                for each in ('left', 'cell/right')]

    states, status, sent, frames = map(listen, (
        'arm/joint_states', 'arm/trajectory_status', 'arm/motors_sent', '/tf'))
    shared = [*map(peer.listen, ('arm/joint_states', '/tf'))]
    talk = peer.talk(JointTrajectory, 'left/arm/joint_trajectory',
                     qos.TOPICS['arm/joint_trajectory'])
    peer.until(lambda: all(states) and all(status) and all(frames), 'both arms')
    # The parameter file of each.
    angles = [each[0].position[each[0].name.index('base')] for each in states]
    assert angles[0] > 0.4
    assert angles[1] < -0.4

    def go():
        if status[0][-1].state != 'running':
            talk.publish(trajectory_message(['base'], [[0.2]], [0.5]))

    peer.until(lambda: status[0][-1].state == 'done', 'a trajectory', every=1.0, say=go)
    assert any(each.base for each in sent[0])
    assert not any(each.base for each in sent[1])
    assert status[1][-1].state != 'running'
    assert shared == [[], []]
    assert peer.node.count_publishers('/tf') == 0
    # The included files keep their environment and their log level to themselves.
    assert 'of the user {message}' in process.output
    assert '[DEBUG]' in process.output
    process.stop()

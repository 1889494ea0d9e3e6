"""The node play: a policy moves a robot by its contract, while the node is active."""

import sys
import threading
import time
from pathlib import Path

import pytest
import reach_checkpoint
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from standstill import standing_still
from std_msgs.msg import String

from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.nodes.play import PlayNode, main
from vdl_ros.nodes.sim_arm import SimArmNode
from vdl_ros.play.robot_policy import open_robot_policy
from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.robots.task import task_of
from vdl_ros.ros.arm.arm_topics import moves
from vdl_ros.ros.robots.robot_env import register_robot

EXAMPLES = Path(__file__).parents[2] / 'examples'
DRIVE = EXAMPLES / 'diff_drive' / 'diff_drive.yaml'
CLIENT = EXAMPLES / 'external_policy' / 'client.py'


@pytest.fixture
def twin(node_here):
    return node_here(SimArmNode, 'publish_clock:=true', 'real_time_factor:=4.0')


def test_it_plays_its_episodes_on_the_twin_and_ends(twin, node_here, peer):
    episodes, motors = peer.listen('episodes'), peer.listen('arm/motors')
    running = node_here(PlayNode, 'robot:=owi535_sim', 'policy:=reach', 'episodes:=2')
    peer.until(lambda: not running.is_running and len(episodes) == 2, 'two episodes')
    assert running.end() == 0
    assert all(each.length > 0 for each in episodes)
    assert 'episode 2: ' in running.output
    assert any(map(moves, motors))
    peer.until(lambda: not moves(motors[-1]), 'motors off')


def test_it_moves_a_robot_only_while_it_is_active(twin, node_here, peer):
    motors = peer.listen('arm/motors')
    node_here(PlayNode, 'robot:=owi535_sim', 'policy:=reach', 'autostart:=false')

    def request(transition):
        return peer.call(ChangeState, 'play/change_state', ChangeState.Request(
            transition=Transition(id=transition))).success

    assert not request(Transition.TRANSITION_ACTIVATE), 'it is not configured'
    assert request(Transition.TRANSITION_CONFIGURE)
    assert not motors
    for _ in range(2):
        count = len(motors)
        # Refused while this process has just stood still.
        peer.until(lambda: request(Transition.TRANSITION_ACTIVATE), 'the activation')
        peer.until(lambda count=count: any(map(moves, motors[count:])), 'motion')
        assert request(Transition.TRANSITION_DEACTIVATE)
        peer.until(lambda: not moves(motors[-1]), 'motors off')
    count = len(motors)
    peer.call(ChangeState, 'play/change_state', ChangeState.Request())
    assert len(motors) == count


def test_a_program_of_its_own_moves_the_twin_while_it_is_the_only_one(
        twin, node_here, launch, peer):
    joints, motors = peer.listen('arm/joint_states'), peer.listen('arm/motors')
    play = node_here(
        PlayNode, 'robot:=owi535_sim', 'policy:=external', 'external_horizon:=0.5')
    peer.until(lambda: 'waits: no program takes /play/observation' in play.output, 'the line')
    assert not motors
    client = launch(sys.executable, str(CLIENT))
    peer.until(lambda: any(map(moves, motors)), 'motion')
    peer.until(lambda: max(map(abs, joints[-1].position[:4])) < 0.1, 'the middle')
    other = peer.talk('play/action')
    peer.until(lambda: 'waits: 2 programs publish /play/action' in play.output, 'the line')
    peer.until(lambda: not moves(motors[-1]), 'motors off')
    client.end()
    peer.node.destroy_publisher(other)
    count = len(motors)
    peer.until(lambda: play.output.count('waits: no program') > 1, 'the line')
    # One that does not answer is asked again.
    asked, third = peer.listen('play/observation'), peer.talk('play/action')
    peer.until(lambda: 'waits: the program has not answered on /play/action for 0.5 s' in
               play.output, 'the line')
    peer.until(lambda: len(asked) > 1 and asked[-1].data == asked[-2].data, 'the question')
    third.publish(String(data='{"id": 1}'))
    peer.until(lambda: 'play/action refused: action: id: 1 is not' in play.output, 'the refusal')
    assert not any(map(moves, motors[count:]))
    assert not client.output


def test_a_request_that_waited_while_it_stood_still_moves_nothing(twin, node_here, peer):
    motors = peer.listen('arm/motors')
    running = node_here(PlayNode, 'robot:=owi535_sim', 'policy:=reach', 'autostart:=false')
    for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE,
                       Transition.TRANSITION_DEACTIVATE):
        request = ChangeState.Request(transition=Transition(id=transition))
        peer.until(lambda request=request: peer.call(
            ChangeState, 'play/change_state', request).success, 'a transition')
    client = peer.node.create_client(ChangeState, 'play/change_state')
    peer.until(client.service_is_ready, 'the service')
    with standing_still(running.node):
        answer = client.call_async(ChangeState.Request(
            transition=Transition(id=Transition.TRANSITION_ACTIVATE)))
        begin = time.monotonic()
        peer.until(lambda: time.monotonic() > begin + 1.5, 'the gap')
        count = len(motors)
    peer.until(answer.done, 'the answer')
    assert not answer.result().success
    assert 'a request to move the robot is refused' in running.output
    assert not any(map(moves, motors[count:]))


def test_a_file_decides_nothing_but_the_policy(tmp_path):
    contract = find_contract('owi535_sim')
    register_robot(contract, '/', threading.Event())
    path = reach_checkpoint.write(
        tmp_path / 'checkpoint.pt', env_id=contract.env_id,
        described=task_of(contract).description(contract))
    found = load_checkpoint(path)
    found['config'] |= {'time_limit': 7, 'num_envs': 3}
    save_checkpoint(path, **{key: found[key] for key in ('config', 'learner', 'progress')})
    env = open_robot_policy(path, contract).env
    assert env == EnvConfig(env_id=contract.env_id, num_envs=1)


def test_what_it_cannot_play_is_one_line(refused):
    for words, reason in (
            ((), 'robot: not set: robot:=NAME'),
            (('robot:=owi535x', 'policy:=reach'),
             "robot: 'owi535x' is not allowed: FOLDER/NAME.yaml, or"),
            (('robot:=owi535_sim', 'policy:=none.pt'),
             "policy: 'none.pt' is not allowed: a checkpoint"),
            ((f'robot:={DRIVE}', 'policy:=reach'),
             "reach.pt: env_id is 'vdl_ros/OWI535Reach-v0', not 'robot/diff_drive'"),
            (('robot:=owi535_camera', 'policy:=reach'), "not 'robot/owi535_camera'")):
        assert reason in refused(main, *words), words

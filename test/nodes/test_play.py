"""The node play: a policy moves a robot by its contract, while the node is active."""

from pathlib import Path

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState

from vdl_ros.nodes.play import PlayNode, main
from vdl_ros.nodes.sim_arm import SimArmNode
from vdl_ros.ros.arm.arm_topics import moves

DRIVE = Path(__file__).parents[2] / 'examples' / 'diff_drive' / 'diff_drive.yaml'


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
        assert request(Transition.TRANSITION_ACTIVATE)
        peer.until(lambda count=count: any(map(moves, motors[count:])), 'motion')
        assert request(Transition.TRANSITION_DEACTIVATE)
        peer.until(lambda: not moves(motors[-1]), 'motors off')
    count = len(motors)
    peer.call(ChangeState, 'play/change_state', ChangeState.Request())
    assert len(motors) == count


@pytest.mark.parametrize(('words', 'reason'), [
    ((), 'robot: not set: robot:=NAME'),
    (('robot:=owi535x', 'policy:=reach'), "robot: 'owi535x' is not allowed: FOLDER/NAME.yaml, or"),
    (('robot:=owi535_sim', 'policy:=none.pt'), "policy: 'none.pt' is not allowed: a checkpoint"),
    ((f'robot:={DRIVE}', 'policy:=reach'),
     "reach.pt: env_id is 'vdl_ros/OWI535Reach-v0', not 'robot/diff_drive'"),
    (('robot:=owi535_camera', 'policy:=reach'), "not 'robot/owi535_camera'")])
def test_what_it_cannot_play_is_one_line(refused, words, reason):
    assert reason in refused(main, *words)

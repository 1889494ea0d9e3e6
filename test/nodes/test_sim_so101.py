"""The node sim_so101: an agent on the topics of ros2_control, and who commands them alone."""

import contextlib
import threading

import numpy as np
import pytest
from std_msgs.msg import Float64MultiArray

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.so101.twin import UPPER
from vdl_ros.nodes.sim_so101 import SimSO101Node
from vdl_ros.ros import qos
from vdl_ros.ros.robots.robot_env import register


@pytest.mark.parametrize('robot', ['so101_sim', 'so101_positions_sim'])
def test_an_agent_moves_the_twin_which_stays_where_it_was_left_and_keeps_its_limits(
        node_here, peer, robot):
    node = node_here(SimSO101Node, 'publish_clock:=true', 'real_time_factor:=2.0')
    states = peer.listen('joint_states')
    register(EnvModulesConfig(), '/', threading.Event())
    with contextlib.closing(
            factory.make(EnvConfig(env_id=f'robot/{robot}', num_envs=1), seed=1)) as env:
        env.reset()
        peer.until(lambda: states, 'joints')
        begin = states[-1].position[0]
        # Between two steps of a slow test an episode may be lost.
        peer.until(lambda: states[-1].position[0] > begin + 0.5, 'motion', every=0.0, say=lambda: (
            env.step(np.array([[1.0, 0.0, 0.0, 0.0, 0.0]], np.float32))))
    # Commands have ended: it holds its place.
    peer.until(lambda: abs(states[-1].velocity[0]) < 0.01, 'rest')
    left = states[-1].position
    count = len(states)
    peer.until(lambda: len(states) > count + 50, 'a second of its time')
    assert states[-1].position == pytest.approx(left, abs=0.02)
    # Somebody else, beyond a limit; others are refused.
    commands = qos.pub(peer.node, 'forward_position_controller/commands')
    peer.until(lambda: states[-1].position[0] == pytest.approx(UPPER[0], abs=0.01), 'the limit',
               say=lambda: commands.publish(Float64MultiArray(data=[9.0, *left[1:5]])), every=0.1)
    peer.until(lambda: '3 numbers are not allowed: 5 or 6' in node.output, 'the refusal',
               say=lambda: commands.publish(Float64MultiArray(data=[0.0] * 3)), every=0.1)

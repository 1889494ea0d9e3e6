"""Reach is learned from nothing to a part of its targets; the policy node then moves the twin."""

import math
import time

import gymnasium
import numpy as np
import pytest
from geometry_msgs.msg import PointStamped
from sensor_msgs.msg import JointState

from vdl_ros import local_training
from vdl_ros.arm.model.geometry import load
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.collisions import CollisionChecker
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.envs.owi535.reach_task import CLOSE
from vdl_ros.envs.owi535.workspace import Workspace
from vdl_ros.envs.registration import REACH
from vdl_ros.msg import TargetStatus
from vdl_ros.rl.acting.evaluation import evaluate
from vdl_ros.ros import qos
from vdl_ros.saved_policy import load_policy

STEPS = 300_000
# A target that is not reached in this time is replaced, s.
PATIENCE = 12.0


@pytest.mark.timeout(1200)
def test_the_arm_learns_to_reach_and_the_node_moves_the_twin_to_a_target(
        launch, peer, tmp_path, own_signals):
    run = tmp_path / 'run'
    assert local_training.main([
        '--env_id', REACH, '--algorithm', 'ppo', '--total_steps', str(STEPS),
        '--run_dir', str(run)]) == 0
    saved = load_policy(run / 'checkpoint.pt')
    envs = gymnasium.make_vec(REACH, 100, feedback='truth')
    found = evaluate(envs, saved.act(), 100, seed=7).episodes
    envs.close()
    # Untrained it reaches hardly any; how many after so few steps depends on the processor.
    assert sum(each.success for each in found) >= 25

    graph = launch('ros2', 'launch', 'vdl_ros', 'arm.launch.py',
                   f'policy:={run / "checkpoint.pt"}', 'view:=false', 'camera:=none',
                   'controller:=false')
    status = peer.listen(TargetStatus, 'arm/target_status', qos.TOPICS['arm/target_status'])
    joints = peer.listen(JointState, 'arm/joint_states', qos.subscription('arm/joint_states'))
    targets = peer.talk(PointStamped, 'arm/target', qos.TOPICS['arm/target'])
    peer.until(lambda: status and joints, 'the policy node and the twin')
    kinematics = Kinematics(load())
    workspace = Workspace(CollisionChecker(build_scene()))
    places = workspace.places[workspace.draw(np.random.default_rng(0), 100)].tolist()
    asked = -math.inf

    def tool():
        positions = dict(zip(joints[-1].name, joints[-1].position, strict=True))
        return kinematics.pose([positions[name] for name in JOINTS])[:3, 3]

    def ask():
        # Another one if this one is not reached, or a busy machine made the node give it up.
        nonlocal asked
        if time.monotonic() - asked < (1.0 if status[-1].state == 'idle' else PATIENCE):
            return
        asked, message = time.monotonic(), PointStamped()
        message.header.frame_id = 'base_link'
        place = next(each for each in places if math.dist(tool(), each) > 0.05)
        places.remove(place)
        message.point.x, message.point.y, message.point.z = place
        targets.publish(message)

    # By the truth too, which may arrive later.
    peer.until(lambda: status[-1].success
               and math.dist(tool(), status[-1].target) <= CLOSE + 0.01,
               'a target that is reached', timeout=600.0, say=ask)
    graph.interrupt()
    assert graph.wait() == 0, graph.output

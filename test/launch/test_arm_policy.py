"""A policy moves the twin, and the USB arm, a fake on whose bytes a twin moves."""

import math
import time

import numpy as np
import pytest
import reach_checkpoint
from arm_messages import joints_now, target_at

from vdl_ros.arm.driver.usb import Signs
from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.simulation import ArmSimulation, SimulatedLink
from vdl_ros.common.files import find_resource
from vdl_ros.msg import MotorCommand
from vdl_ros.ros import qos
from vdl_ros.tools import export_policy

# Where it stands, and where its base should turn to; this policy turns no other joint.
START = np.array([0.0, 0.8, 0.8, 0.0, 0.0])
TARGET = Kinematics(load()).pose(START + [0.6, 0.0, 0.0, 0.0, 0.0])[:3, 3]
GRIPPER_OPENS = '020000'


class TwinOnUsb:
    """The twin that moves by the bytes which the fake device was sent, and that is measured."""

    def __init__(self, peer, bench):
        self._node, self._bench = peer.node, bench
        self._simulation = ArmSimulation(seed=3)
        self._simulation.reset(dict(zip(JOINTS, START.tolist(), strict=True)))
        self._link = SimulatedLink(self._simulation, Signs())
        self._states = qos.pub(peer.node, 'arm/joint_states')
        self._moved_at = time.monotonic()

    def move(self):
        """Simulate the time since the last call, and publish the joints."""
        now = time.monotonic()
        # A machine that stands still for longer does not let the twin run away.
        elapsed, self._moved_at = min(now - self._moved_at, 0.1), now
        data = self._bench.data
        if data:
            self._link.send(bytes.fromhex(data[-1]))
        self._simulation.step(elapsed)
        self._states.publish(joints_now(self._node, self._simulation.joint_positions.tolist()))

    @property
    def away(self):
        """Return the true distance of tool0 from the target, m."""
        tool = Kinematics(load()).pose(self._simulation.joint_positions)[:3, 3]
        return float(np.linalg.norm(tool - TARGET))


def asking(peer, status):
    """Return a function that asks for the target, once more if a busy machine gave it up."""
    targets = peer.talk('arm/target')
    asked = [-math.inf]

    def ask():
        if status and status[-1].state == 'idle' and time.monotonic() > asked[-1] + 1.0:
            asked.append(time.monotonic())
            targets.publish(target_at(TARGET))
    return ask


@pytest.mark.slow
def test_a_policy_brings_the_usb_arm_to_a_target_and_gives_way_to_a_hand(
        launch, peer, bench, tmp_path):
    checkpoint = reach_checkpoint.write(tmp_path / 'checkpoint.pt')
    process = launch.file('arm', f'policy:={checkpoint}', 'arm:=real',
                          'usb_backend:=fake_owi535:make', 'camera:=none', 'view:=false',
                          'gripper_max_run_time:=60')
    status = peer.listen('arm/target_status')
    request = asking(peer, status)
    hand = peer.talk('arm/motors')
    process.wait_for(lambda: 'the arm follows arm/motors' in process.output, 'the driver')
    # Who comes later need not let go first.
    for lamp, data in ((1, '000001'), (-1, '000000')):
        peer.until(lambda data=data: bench.data[-1] == data, 'the lamp',
                   say=lambda lamp=lamp: hand.publish(MotorCommand(sender='/viewer', lamp=lamp)))
    twin = TwinOnUsb(peer, bench)
    begin = twin.away
    assert begin > 0.05

    def ask():
        twin.move()
        request()

    peer.until(lambda: twin.away < begin - 0.02, 'the arm comes nearer', say=ask)

    def hold():
        twin.move()
        hand.publish(MotorCommand(sender='/viewer', gripper=1))

    # The policy falls silent; from then on the device hears the hand alone.
    peer.until(lambda: status[-1].state == 'idle', 'the policy gives way', say=hold, every=0.05)
    count = len(bench.data)
    peer.until(lambda: len(bench.data) > count + 4, 'some transfers', say=hold, every=0.05)
    # A hand that a busy machine delays counts as let go.
    assert {GRIPPER_OPENS} <= {*bench.data[count + 1:]} <= {GRIPPER_OPENS, '000000'}
    hand.publish(MotorCommand(sender='/viewer'))
    peer.until(lambda: status[-1].success, 'success', say=ask)
    assert twin.away < 0.03
    process.stop()
    assert bench.data[-1] == '000000'


def test_the_shipped_policy_as_an_onnx_file_brings_the_twin_to_a_target(
        launch, peer, tmp_path, capsys):
    path = tmp_path / 'reach.onnx'
    assert export_policy.main([str(find_resource('models/reach.pt')), '--output', str(path)]) == 0
    assert f'{path}: vdl_ros/OWI535Reach-v0, ppo, ' in capsys.readouterr().out
    process = launch.file('arm', f'policy:={path}', 'camera:=none', 'view:=false',
                          'controller:=false', 'black_box:=none')
    status, joints = map(peer.listen, ('arm/target_status', 'arm/joint_states'))
    ask = asking(peer, status)
    peer.until(lambda: status and joints, 'the policy node and the twin')

    def away():
        positions = dict(zip(joints[-1].name, joints[-1].position, strict=True))
        tool = Kinematics(load()).pose([positions[name] for name in JOINTS])[:3, 3]
        return math.dist(tool, TARGET)

    assert away() > 0.05
    peer.until(lambda: status[-1].success and away() < 0.03, 'success', say=ask)
    (node,) = process.nodes('play')
    assert not [each.path for each in node.memory_maps() if 'torch' in each.path]
    process.stop()

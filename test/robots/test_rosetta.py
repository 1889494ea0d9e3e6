"""Contracts of rosetta: what they say, and what has to be added."""

import json
import math
import re

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from refusals import refusal
from sensor_msgs.msg import JointState

from vdl_ros.robots.contract import ContractError
from vdl_ros.robots.contract_files import read_contract
from vdl_ros.robots.positions import Positions
from vdl_ros.ros.robots.robot_topics import RobotInterfaces

STATE = {'channel': {'topic': '/arm/joint_states', 'type': 'sensor_msgs/msg/JointState',
                     'qos': {'depth': 9}},
         'align': {'strategy': 'hold', 'timeline': 'header'},
         'select': ['position.pan', 'position.lift'], 'apply': ['rad2deg']}
ROSETTA = {
    'robot_type': 'mine', 'robot_interface': 'ros2', 'fps': 30,
    'observations': {
        'observation.images.top.left': {
            'channel': {'topic': '/top', 'type': 'sensor_msgs/msg/CompressedImage'},
            'apply': [{'resize': [512, 512]}]},
        'observation.state': [STATE, {
            'channel': {'topic': '/odom', 'type': 'nav_msgs/msg/Odometry'},
            'select': ['twist.twist.linear.x'], 'apply': [
                {'clamp': {'min': -1, 'max': 1}}, {'clamp': {'min': None, 'max': 9}}]}]},
    'actions': {'action': STATE | {'channel': STATE['channel'] | {
        'topic': '/arm/joint_commands', 'safety': 'hold'}}}}
OWN = {'rosetta': 'theirs.yaml', 'rate': 10.0, 'step': 3.0,
       'bounds': {'position.pan': [-90, 90], 'position.lift': [-45.0, 45.0]},
       'late': {'action': 'stop', 'limit': 0.5}, 'reset': {'none': True}, 'success_reward': 1.0,
       'episode_steps': 100}


@pytest.fixture
def read(tmp_path):
    def write_and_read(own=OWN, **rosetta):
        (tmp_path / 'theirs.yaml').write_text(json.dumps(ROSETTA | rosetta))
        (tmp_path / 'mine.yaml').write_text(json.dumps(own))
        return read_contract(tmp_path / 'mine.yaml')
    return write_and_read


def test_a_contract_of_rosetta_is_one_with_what_it_lacks(read):
    contract = read()
    assert contract.rate == 10.0
    assert [(each.name, each.source, each.low, each.high) for each in contract.features] == [
        ('position.pan', 'arm_joint_states', -90.0, 90.0),
        ('position.lift', 'arm_joint_states', -45.0, 45.0),
        ('twist.twist.linear.x', 'odom', -1.0, 1.0)]
    assert [each.name for each in contract.images] == ['top_left']
    assert (contract.topics['arm_joint_states'].stamped, contract.topics['odom'].stamped) == (
        True, False)
    interfaces = RobotInterfaces(contract)
    seen = JointState(name=['lift', 'pan'], position=[math.pi / 6, -math.pi / 3])
    values = {name: read(seen) for name, read in interfaces.readers['arm_joint_states']}
    assert values == pytest.approx({'position.pan': -60.0, 'position.lift': 30.0})
    sent = interfaces.message(
        Positions(contract).of(np.array([90.0, np.nan]), values), Time(sec=1), '')
    assert (sent.name, sent.header.stamp.sec) == (['pan', 'lift'], 1)
    np.testing.assert_allclose(np.degrees(sent.position), [-57.0, 30.0])
    assert interfaces.values(sent) == pytest.approx([-57.0, 30.0])


REFUSED = [
    ({'bounds': {'position.pan': [-90, 90]}}, {}, 'bounds: position.lift: missing: .low, high., '),
    ({'bounds': {'position.pan': 90}}, {}, 'bounds: position.pan: 90 is not allowed: .low, high'),
    ({'step': None}, {}, 'step: missing: how far position.pan moves in a step'),
    ({}, {'actions': {'action': [STATE, STATE]}}, 'theirs.yaml: actions: 2 channels are not'),
    *(({}, {'actions': {'action': {'channel': {'topic': '/cmd', 'type': kind, 'safety': safety},
                                   'select': [label], 'apply': [{'clamp': {'min': -1, 'max': 1}}]}
                        }}, f'/cmd: {label}: safety: {safety} is not allowed: zeros, or positions')
      for kind, label, safety in (
          ('geometry_msgs/msg/Twist', 'linear.x', 'hold'),
          ('std_msgs/msg/Float64MultiArray', 'position.pan', 'none'),
          ('sensor_msgs/msg/JointState', 'velocity.pan', 'none'),
          ('sensor_msgs/msg/JointState', 'position.gripper', 'zeros'))),
    ({}, {'observations': {'observation.state': STATE | {'apply': ['rotate']}}},
     "observation.state: apply: 'rotate' is not allowed: rad2deg, clamp"),
    ({'bounds': {}}, {'observations': {'observation.state': STATE | {'apply': [
        {'clamp': {'min': None, 'max': 1}}]}}}, 'bounds: position.pan: missing: .low, high.'),
    ({}, {'observations': {'observation.state': STATE | {'apply': [{'clamp': {'min': [1]}}]}}},
     'observation.state: apply: clamp: min: .1. is not allowed: a number'),
    ({}, {'observations': {'observation.state': STATE | {'channel': STATE['channel'] | {
        'decoder': 'os:system'}}}}, "'os:system' is not allowed: no decoder"),
    ({}, {'fps': 'fast'}, "mine.yaml: theirs.yaml: fps: 'fast' is not allowed: a number")]


def test_what_of_it_has_no_counterpart_is_one_line(read):
    for own, rosetta, error in REFUSED:
        line = refusal(ContractError, read, OWN | own, **rosetta)
        assert re.search(error, line), (own, rosetta, line)

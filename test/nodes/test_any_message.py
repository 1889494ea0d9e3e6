"""A message or a request of any content ends no node."""

import importlib
import math
import re
from functools import partial

import numpy as np
import pytest
from mutations import pick
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import SetParameters
from std_msgs.msg import String
from std_srvs.srv import Trigger

from vdl_ros.arm.geometry import expand
from vdl_ros.arm.joints import JOINTS
from vdl_ros.nodes.arm_controller import ArmControllerNode
from vdl_ros.nodes.go_to import GoToNode, PolicyGoToNode
from vdl_ros.nodes.robot_state import RobotStateNode
from vdl_ros.nodes.sim_arm import SimArmNode
from vdl_ros.nodes.topic_stats import TopicStatsNode
from vdl_ros.nodes.training_viewer import TrainingViewerNode
from vdl_ros.nodes.viewer import ViewerNode
from vdl_ros.ros.base_node import BaseNode

PLACE = 0.1, 0.1, 0.2
NODES = {
    'viewer': (ViewerNode, 'view_port:=0'),
    'training_viewer': (TrainingViewerNode, 'view_port:=0'),
    'arm_controller': (ArmControllerNode,), 'sim_arm': (SimArmNode,),
    'robot_state': (RobotStateNode,), 'topic_stats': (TopicStatsNode,),
    'go_to': (lambda: GoToNode(PLACE),),
    'go_to --policy': (lambda: PolicyGoToNode(PLACE, 1.0),)}
EACH = 60
TEXTS = '', 'a' * 10_000, '\x1b[2J\n', 'base_link', 'rgb8', 'idle', '/learner', *JOINTS
FLOATS = 0.0, -1.0, 0.5, 3e38, -3e38, math.inf, -math.inf, math.nan


def fill(message, rng):
    """Set every field of a message to something that its type allows, and return it."""
    count = pick(rng, (0, 1, 5, 40))
    for name, kind in message.get_fields_and_field_types().items():
        item = re.fullmatch(r'sequence<([^,>]*)(?:, \d+)?>|([^<]*)\[(\d+)\]', kind)
        if item is None:
            value = value_of(kind, rng)
        else:
            # Joints mostly by their names, or nothing would be read.
            value = [value_of(item[1] or item[2], rng) for _ in range(int(item[3] or count))]
            if name in ('name', 'joint_names') and count == 5 and rng.integers(4):
                value = list(JOINTS)
        setattr(message, name, value)
    return message


def value_of(kind, rng):
    if '/' in kind:
        package, _, name = kind.partition('/')
        return fill(getattr(importlib.import_module(f'{package}.msg'), name)(), rng)
    if kind in ('float', 'double'):
        return float(pick(rng, FLOATS))
    if kind == 'boolean':
        return bool(rng.integers(2))
    if kind in ('octet', 'byte'):
        return bytes([int(rng.integers(256))])
    if kind.startswith('string'):
        return pick(rng, TEXTS)
    bits = int(re.search(r'int(\d+)', kind)[1])
    low, high = (0, 2**bits - 1) if kind.startswith('u') else (-2**(bits - 1), 2**(bits - 1) - 1)
    return int(pick(rng, (0, 0, 1, 1, 3, low, high, max(low, -1))))


@pytest.mark.parametrize('name', NODES)
def test_no_message_is_a_bug(node_here, name, printed, monkeypatch):
    # Nothing but the test calls it.
    monkeypatch.setattr(BaseNode, 'run', lambda self, stop: (stop.wait(), self.stop()))
    make, *parameters = NODES[name]
    node = node_here(make, *parameters).node
    rng = np.random.default_rng(1)
    for subscription in node.subscriptions:
        if subscription.topic_name == '/robot_description':
            subscription.callback(String(data=expand()))
    for _ in range(EACH):
        for each in node.subscriptions:
            each.callback(fill(each.msg_type(), rng))
        for timer in node.timers:
            timer.callback()
    assert 'Traceback' not in printed(), printed()[-3000:]


class Fragile(BaseNode):
    """A node whose callbacks fail."""

    NAME, made_safe = 'fragile', 0

    def __init__(self):
        super().__init__()
        self.sub('record_episodes/state', lambda message: {}[message.data])
        self.create_service(Trigger, 'ask', lambda request, response: [][0])

    def make_safe(self):
        self.made_safe += 1


def test_an_error_of_a_callback_is_refused_and_its_trace_is_logged_once(node_here, peer):
    running = node_here(Fragile)
    # Later ones arrive only at a node that goes on.
    peer.until(lambda: running.node.made_safe > 2, 'the errors', every=0.1,
               say=partial(peer.talk('record_episodes/state').publish, String(data='\x1b[2J')))
    line = "record_episodes/state refused: KeyError: '\\x1b[2J'"
    assert running.output.count(line) == running.output.count('Traceback') == 1
    assert not peer.call(Trigger, 'ask', Trigger.Request()).success
    # Of the services of rclpy: a type that no parameter has.
    wrong = Parameter(name='x', value=ParameterValue(type=99))
    peer.call(SetParameters, 'fragile/set_parameters', SetParameters.Request(parameters=[wrong]))
    assert 'fragile/set_parameters refused: 99 is not' in running.output

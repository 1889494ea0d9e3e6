"""The panel's text for known and unknown states."""

import math
from types import SimpleNamespace

import numpy as np

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.view.state_text import ArmStatus, state_text

UNKNOWN = np.full(5, math.nan)


def test_angles_are_in_degrees_and_motors_in_words():
    text = state_text(ArmStatus(), UNKNOWN, None, 100.0)
    assert text.count('| ? | ? |') == 5
    assert 'No arm is connected.' in text
    assert 'No joint measurements.' in text
    assert 'camera' not in text
    motors = dict.fromkeys(JOINTS, 0) | {'base': 1, 'wrist': -1}
    status = ArmStatus(motors=motors, measured_at=99.5)
    positions = np.radians([10.0, -20.0, 0.0, 5.5, math.nan])
    text = state_text(status, positions, None, 100.0)
    for row in ('| base | 10.0° | **forward** |', '| shoulder | -20.0° | off |',
                '| wrist | 5.5° | **backward** |', '| gripper | ? | off |'):
        assert row in text
    assert 'No joint measurements' not in text
    assert 'No joint measurements.' in state_text(status, positions, None, 101.0)


def test_notes_for_stop_trajectory_and_estimate():
    status = ArmStatus(emergency=True, trajectory='running', progress=0.42)
    text = state_text(status, UNKNOWN, SimpleNamespace(confident=True), 0.0)
    assert 'Emergency stop' in text
    assert 'Trajectory: 42 %.' in text
    assert 'The camera sees the arm.' in text
    status = ArmStatus(trajectory='aborted', reason='wrist: stuck')
    text = state_text(status, UNKNOWN, SimpleNamespace(confident=False), 0.0)
    assert 'aborted: wrist: stuck.' in text
    assert 'uncertain' in text


def test_texts_of_messages_are_no_markdown():
    for text, shown in (
            ('![x](http://evil.test/a)', r'\!\[x\]\(http:\/\/evil\.test\/a\)'),
            ('<img src=x>', r'\<img src\=x\>'), ('a\n\n# b', r'\'a\\n\\n\# b\''),
            ('x' * 10**6, rf"\'{'x' * 76}\.\.\.")):
        for status in (ArmStatus(trajectory='aborted', reason=text),
                       ArmStatus(emergency=True, stopped_by=text)):
            assert shown in state_text(status, UNKNOWN, None, 0.0)


def test_target_of_a_policy_is_shown():
    for values, text in (
            ({'state': 'idle'}, 'Drag the target: the arm follows.'),
            ({'state': 'idle', 'reason': 'emergency stop'}, 'Target: emergency stop.'),
            ({'distance': 0.123, 'reaction_time': 0.1}, 'Target: 12.3 cm, reaction 0.10 s.'),
            ({'distance': 0.01, 'reaction_time': 0.1, 'success': True, 'time_to_target': 4.25},
             'Target: 1.0 cm, reaction 0.10 s, **reached after 4.2 s**.'),
            ({'state': 'paused', 'reason': '[x](http://y)'},
             'Target: \\[x\\]\\(http:\\/\\/y\\)')):
        target = SimpleNamespace(**{
            'state': 'running', 'reason': '', 'distance': math.nan, 'success': False,
            'reaction_time': math.nan, 'time_to_target': math.nan, **values})
        assert text in state_text(ArmStatus(target=target), UNKNOWN, None, 0.0)

"""What the view shows: the state of the arm and of a training, and the target of a policy."""

import asyncio
import math
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from vdl_ros.arm.joints import JOINTS
from vdl_ros.view.panel import DraggedTarget
from vdl_ros.view.state_text import ArmStatus, state_text
from vdl_ros.view.training_page import (
    Curve,
    TrainingStatus,
    losses_text,
    settings_text,
    training_text,
)

UNKNOWN = np.full(5, math.nan)


def test_angles_are_in_degrees_and_motors_in_words():
    text = state_text(ArmStatus(), UNKNOWN, None, 100.0)
    assert text.count('| ? | &emsp;? |\n') == 5
    assert text.count('| &emsp;? | &emsp;? | &emsp;? |') == 2
    assert 'No arm is connected.' in text
    assert 'No joint measurements.' in text
    assert 'camera' not in text
    motors = dict.fromkeys(JOINTS, 0) | {'base': 1, 'wrist': -1}
    status = ArmStatus(motors=motors, sent_at=99.5, measured_at=99.5)
    status.tips = np.array([0.1, -0.0001, 0.25])
    positions = np.radians([10.0, -20.0, -0.04, 5.5, math.nan])
    text = state_text(status, positions, None, 100.0)
    for row in ('| base | 10.0° | &emsp;**forward** |', '| shoulder | -20.0° | &emsp;off |',
                '| elbow | 0.0° |', '| wrist | 5.5° | &emsp;**backward** |',
                '| gripper | ? | &emsp;off |',
                '| finger tips | &emsp;0.100 | &emsp;0.000 | &emsp;0.250 |'):
        assert row in text
    assert 'No ' not in text
    old = state_text(status, positions, None, 101.0)
    assert old == state_text(ArmStatus(), UNKNOWN, None, 101.0).replace(
        'No arm is connected.', 'The arm is silent.')


def test_notes_are_shown_and_texts_of_messages_are_no_markdown():
    for status, confident, note in (
            (ArmStatus(trajectory='running', progress=0.42), True, 'Trajectory: 42 %.'),
            (ArmStatus(trajectory='running'), True, 'The camera sees the arm.'),
            (ArmStatus(), False, 'uncertain')):
        assert note in state_text(status, UNKNOWN, confident, 0.0)
    for text, shown in (
            ('wrist: stuck', 'wrist: stuck'),
            ('![x](http://evil.test/a)', r'\!\[x\]\(http:\/\/evil\.test\/a\)'),
            ('<img src=x>', r'\<img src\=x\>'), ('a\n\n# b', r'\'a\\n\\n\# b\''),
            ('x' * 10**6, rf"\'{'x' * 76}\.\.\.")):
        for status, note in (
                (ArmStatus(trajectory='aborted', reason=text), f'aborted: {shown}.'),
                (ArmStatus(emergency=True, stopped_by=text), f'Emergency stop by {shown}: all')):
            assert note in state_text(status, UNKNOWN, None, 0.0)


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
        assert text not in state_text(ArmStatus(target=target), UNKNOWN, None, 0.0)
        assert text in state_text(ArmStatus(target=target, sent_at=0.0), UNKNOWN, None, 0.0)
        stopped = state_text(ArmStatus(
            target=target, sent_at=0.0, emergency=True, stopped_by='/stop', stopped_at='12:00:01'),
            UNKNOWN, None, 0.0)
        assert '**Emergency stop by \\/stop since 12:00:01: all motors are off.**' in stopped
        assert text not in stopped


def status(**values):
    found = TrainingStatus(env_id='CartPole-v1', algorithm='impala', total_steps=3_000_000)
    found.add('agent_steps', 1234.0, now=10.0)
    for tag, value in values.items():
        found.add(tag, value, now=10.0)
    return found


def test_figures_of_a_training_are_shown():
    found = status(**{
        'charts/SPS': 15256.4, 'charts/episodic_return': 9.5, 'flow/policy_lag_mean': 1.25,
        'losses/policy_loss': -0.0123456, 'reaction_time/p50_ms': 41.5,
        'charts/success_rate': 0.5, 'takeovers/share': 0.25, 'other/thing': 1.0})
    found.bottleneck = (
        'actors wait 60% of their time: the learner is the bottleneck (60% decoding '
        'trajectories); no core is free: try a GPU, or num_learners:=2 with another host')
    text = training_text(found, 11.0)
    for line in ('**CartPole-v1 · impala**', '| agent steps | 1,234 of 3,000,000 |',
                 '| watched for | 0:00:01 |', '| time left, about | 0:03:17 |',
                 '| steps per second | 15,256 |', '| return | 9.50 |', '| success | 50% |',
                 '| reaction time: p50 ms | 41.5 |', "| a person's steps | 25% |"):
        assert line in text
    assert '**Bottleneck:** actors wait 60\\% of their time' in text
    assert 'with another host.' in text, 'not cut'
    assert 'loss' not in text
    assert losses_text(found).splitlines()[2:] == ['| policy loss | -0.01235 |']
    assert losses_text(TrainingStatus()) == settings_text(TrainingStatus()) == ''
    found.settings = {'seed': 3, 'init': '', 'run_dir': '[x](y)'}
    assert settings_text(found).splitlines()[2:] == [
        '| run dir | \\[x\\]\\(y\\) |', '| seed | 3 |']
    assert 'thing' not in text
    assert 'silent' not in text
    assert 'silent for 9 s' in training_text(found, 19.0)


def test_without_figures_the_page_waits_and_notes_make_no_links():
    assert training_text(TrainingStatus(), 0.0) == 'Waiting for the training.'
    found = status()
    found.without_images, found.warning = '[here](http://stranger.test)', '2 trajectories lost'
    text = training_text(found, 10.0)
    assert 'No images of the policy: \\[here\\]\\(http' in text
    assert 'Warning: 2 trajectories lost.' in text


def test_a_curve_keeps_first_and_newest_point_within_its_bound():
    curve = Curve(most=10)
    for step in range(1000):
        curve.add(step, 2.0 * step)
        x, y = curve.arrays()
        assert len(x) <= 11
        assert (x[0], x[-1]) == (0, step)
        assert np.array_equal(y, 2.0 * x)
        assert (np.diff(x) > 0).all()


def test_a_restarted_learner_replaces_what_it_learns_again():
    found = status(**{'charts/SPS': 1.0})
    for steps, rate in ((2000, 2.0), (3000, 3.0), (2500, 9.0), (2600, 8.0)):
        found.add('agent_steps', steps, now=12.0)
        found.add('charts/SPS', rate, now=12.0)
    x, y = found.curves['charts/SPS'].arrays()
    assert x.tolist() == [1234, 2000, 2500, 2600]
    assert y.tolist() == [1, 2, 9, 8]
    assert found.times['charts/SPS'].arrays()[0].tolist() == [0.0, 2.0 / 60.0]
    # Values before the first steps are in no curve.
    found = TrainingStatus()
    found.add('charts/SPS', 1.0, now=0.0)
    assert not found.curves


def test_a_user_who_drags_it_knows_better_than_the_topic():
    server, now = MagicMock(), [100.0]
    handle = server.scene.add_transform_controls.return_value
    sphere = server.scene.add_icosphere.return_value
    handle.visible = False
    target = DraggedTarget(server, lambda: now[0])
    moved, = handle.on_update.call_args.args

    def drag(*place, phase='update'):
        """Let a browser send this."""
        handle.position = place
        asyncio.run(moved(SimpleNamespace(phase=phase, target=handle)))

    drag(0.1, 0.1, 0.1)
    assert target.dragged() is None, 'there is no policy yet'
    target.show(np.full(3, math.nan), False)
    assert handle.visible
    assert handle.position == (0.1, 0.1, 0.1)
    drag(0.1, 0.1, 0.1, phase='start')
    assert target.dragged() is None
    # The newest place counts, once.
    drag(0.1, 0.1, 0.1)
    drag(0.2, 7.0, -7.0)
    assert target.dragged().tolist() == [0.2, 1.0, -1.0]
    assert target.dragged() is None
    topic = np.array([0.3, 0.2, 0.1])
    target.show(topic, True)
    assert handle.position == (0.2, 7.0, -7.0)
    reached = sphere.color
    now[0] += 2.0
    target.show(topic, False)
    assert handle.position == pytest.approx(topic)
    assert sphere.color != reached
    # That of a training is where it says, and cannot be dragged.
    drag(0.2, 0.2, 0.2)
    target.dragged()
    target.show(topic, False, fixed=True)
    assert handle.position == pytest.approx(topic)
    assert handle.disable_axes
    assert handle.disable_sliders


def test_a_person_reads_how_near_the_arm_is_to_the_target_of_a_training():
    status = ArmStatus(training='episode 1: a person acts', away=0.0183)
    assert 'a person acts**, the finger tips are 1.8 cm from the target.' in state_text(
        status, UNKNOWN, None, 100.0)

"""The text and the curves of the view of a training."""

import math

import numpy as np

from vdl_ros.view.training_status import Curve, TrainingStatus, losses_text, training_text


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
        'charts/success_rate': 0.5, 'other/thing': 1.0})
    found.bottleneck = (
        'actors wait 60% of their time: the learner is the bottleneck (60% decoding '
        'trajectories); no core is free: try a GPU, or num_learners:=2 with another host')
    text = training_text(found, 11.0)
    for line in ('**CartPole-v1 · impala**', '| agent steps | 1,234 of 3,000,000 |',
                 '| steps per second | 15,256 |', '| return | 9.50 |', '| success | 50% |',
                 '| reaction time: p50 ms | 41.5 |'):
        assert line in text
    assert '**Bottleneck:** actors wait 60\\% of their time' in text
    assert 'with another host.' in text, 'not cut'
    assert 'loss' not in text
    assert losses_text(found).splitlines()[2:] == ['| policy loss | -0.01235 |']
    assert losses_text(TrainingStatus()) == ''
    assert 'thing' not in text
    assert 'silent' not in text
    assert 'silent for 9 s' in training_text(found, 19.0)


def test_without_figures_the_page_waits_and_notes_make_no_links():
    assert training_text(TrainingStatus(), 0.0) == 'Waiting for the training.'
    found = status()
    found.without_images = '[here](http://stranger.test)'
    found.warning = '2 trajectories lost'
    text = training_text(found, 10.0)
    assert 'No images of the policy: \\[here\\]\\(http' in text
    assert 'Warning: 2 trajectories lost.' in text


def test_tags_are_bounded():
    found = status(**{f'losses/{index}': 0.0 for index in range(500)})
    assert len(found.values) == 200
    assert not found.curves
    found.add('losses/0', 5.0, now=11.0)
    assert found.values['losses/0'] == 5.0


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
    # Values before the first steps are in no curve.
    found = TrainingStatus()
    for tag in ('charts/SPS', 'losses/loss'):
        found.add(tag, 1.0, now=0.0)
    assert math.isnan(found.steps)
    assert not found.curves

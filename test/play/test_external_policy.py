"""Policies of other programs: what they are told, and which of their actions are in force."""

import json
import math
import runpy
from pathlib import Path

import msgspec
import numpy as np
import pytest
from builtin_interfaces.msg import Time
from refusals import refusal

from vdl_ros.common.observation_spaces import number_error
from vdl_ros.play.external_policy import Answer, Chunks, Told, make_measured_task
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.robots.task import HISTORY, Measured
from vdl_ros.ros.messages.images import to_image

OWI535 = find_contract('owi535')
JOINTS = ['base', 'shoulder', 'elbow', 'wrist', 'gripper']


def test_a_policy_is_told_features_in_their_units_ages_and_the_target():
    task = make_measured_task(OWI535)
    values = dict(zip(JOINTS, [0.1, 0.2, 0.3, math.nan, 0.5], strict=True))
    measured = Measured(values, {'joints': 4.0}, {'joints': 0.02}, 1.3, np.zeros((HISTORY, 4)))
    task.begin(measured, np.random.default_rng(0))
    observation = task.observe(measured)
    assert observation.shape == task.observation_space.shape
    assert not number_error(observation), 'although a joint is not measured'
    told = json.loads(msgspec.json.encode(Told.of(
        observation, OWI535, 'a.7', True, {'camera': '/camera/image_raw'})))
    assert told == {
        'id': 'a.7', 'is_first': True, 'time': 1.3, 'rate': 10.0,
        'state': values | {'wrist': None}, 'ages': {'joints': 0.02},
        'target': task.target.tolist(), 'images': {'camera': '/camera/image_raw'}}


def test_an_answer_has_the_parts_of_the_contract_by_name_in_any_order():
    text = json.dumps({'id': 'a.7', 'names': ['gripper', 'wrist', 'elbow', 'shoulder', 'base'],
                       'actions': [[5, 0.4, 0.3, 0.2, 0.1], [0, 0, 0, 0, 1e300]]})
    name, actions = Answer.read(text, OWI535)
    assert name == 'a.7'
    assert actions.tolist() == [[0.1, 0.2, 0.3, 0.4], [1.0, 0, 0, 0]], 'within -1 to 1'
    assert Answer.read('{"id": "b", "actions": [[0.1, 0.2, 0.3, 0.4]]}', OWI535)[1].tolist() == [
        [0.1, 0.2, 0.3, 0.4]]


def test_the_example_does_not_answer_while_an_image_is_silent():
    client = runpy.run_path(str(
        Path(__file__).resolve().parents[2] / 'examples/external_policy/client.py'))
    now = [0.0]
    images = client['Images'](['left', 'right'], lambda: now[0])
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    images.add('left', to_image(pixels, Time()))
    assert not images.are_new, 'there is no other one'
    other = to_image(pixels, Time())
    other.encoding = 'bgr8'
    images.add('right', other)
    assert images.are_new
    np.testing.assert_array_equal(images.newest['left'], pixels)
    np.testing.assert_array_equal(images.newest['right'], pixels[..., ::-1])
    now[0] = 0.6
    images.add('left', to_image(pixels, Time()))
    assert not images.are_new


def test_what_is_no_answer_is_refused_in_one_line():
    for text, reason in (
            ('{', 'no JSON'), ('[' * 100_000, 'no JSON'), ('{"id": 1}', 'action'),
            ('{"id": "a", "actions": []}', 'action'),
            ('{"id": "a", "actions": [[1, 2, 3]]}', '4 numbers each'),
            ('{"id": "a", "actions": [[1, 2, 3, 4], [1]]}', '4 numbers each'),
            ('{"id": "a", "actions": [[1, 2, 3, 1e999]]}', 'no JSON'),
            ('{"id": "a", "actions": [[1, 2, 3, NaN]]}', 'no JSON'),
            ('{"id": "a", "names": ["base"], "actions": [[1]]}', 'names'),
            *((json.dumps({'id': 'a', 'names': [*JOINTS, more], 'actions': [[0] * 6]}), 'names')
              for more in ('lamp', 'base'))):
        assert reason in refusal(ValueError, Answer.read, text, OWI535), text[:99]


def chunks(ensemble=-1.0, horizon=2.0):
    """Return chunks at 10 Hz, after answers of 3 actions each to steps 0 and 1, and of 1 to 2."""
    found = Chunks(10.0, horizon, ensemble)
    for step in range(3):
        assert found.ask(str(step), 0.1 * step) == step
    assert found.answer('1', np.array([[20.0], [21.0], [22.0]])) == 1
    assert found.answer('0', np.array([[10.0], [11.0], [12.0]])) == 0
    assert found.answer('2', np.array([[30.0]])) == 2
    return found


def test_the_action_of_the_newest_observation_is_in_force():
    found = chunks()
    assert [found.at(step) for step in range(5)] == [10.0, 20.0, 30.0, 22.0, None]


def test_temporal_ensembling_weights_the_oldest_action_most():
    weights = np.exp(-0.5 * np.arange(3))
    found = chunks(ensemble=0.5)
    found.at(0)
    assert found.at(2) == pytest.approx(weights @ [12.0, 21.0, 30.0] / weights.sum())
    assert chunks(ensemble=0.0).at(2) == pytest.approx(21.0)


def test_actions_are_in_force_up_to_the_horizon_and_within_their_episode():
    found = chunks(horizon=0.2)
    assert [found.at(step) for step in range(4)] == [10.0, 20.0, 30.0, None]
    found.ask('3', 0.3)
    found.clear()
    assert found.answer('3', np.array([[1.0]])) is None
    assert found.answer('unknown', np.array([[1.0]])) is None
    assert found.at(3) is None

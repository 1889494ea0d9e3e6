"""Contracts: what is read, what an include replaces, and the line for each mistake."""

import math

import numpy as np
import pytest
import yaml
from msgspec.structs import asdict
from refusals import refusal
from robot_contract import GOOD

from vdl_ros.robots.classifier import classifier_of
from vdl_ros.robots.contract import (
    ActionPart,
    Actions,
    ContractError,
    ServiceReset,
    TrajectoryReset,
)
from vdl_ros.robots.contract_files import known_contracts, read_contract
from vdl_ros.robots.task import make_task


def changed(place, value):
    """Return the good contract with another value at a place, 'topics.odom.type' for example."""
    content = yaml.safe_load(yaml.safe_dump(GOOD))
    *parents, last = [int(each) if each.isdigit() else each for each in place.split('.')]
    found = content
    for each in parents:
        found = found[each]
    found[last] = value
    return content


@pytest.fixture
def write(tmp_path):
    def to(content, name='mine.yaml'):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path
    return to


def test_the_contracts_of_the_package_can_be_read():
    known = known_contracts()
    real, twin, seeing = (
        read_contract(known[name]) for name in ('owi535', 'owi535_sim', 'owi535_camera'))
    assert isinstance(real.reset, TrajectoryReset)
    assert isinstance(twin.reset, ServiceReset)
    # The twin has another reset and another clock, nothing else.
    same = {name: value for name, value in asdict(real).items()
            if name not in ('path', 'resets', 'clock')}
    assert same.items() <= asdict(twin).items()
    assert (real.simulated_clock, twin.simulated_clock) == (False, True)
    assert real.recorded == seeing.recorded[:-1]
    assert [[*each.inputs] for each in (real, seeing)] == [['joints'], ['joints', 'camera']]


def test_an_include_gives_the_keys_that_are_not_there_and_a_null_takes_them_away(write):
    write(GOOD | {'images': [{'name': 'camera', 'topic': 'camera/image_raw'}]}, 'base.yaml')
    found = read_contract(write({
        'include': 'base.yaml', 'images': None, 'reward': None, 'rate': 5.0,
        'task': {'function': 'tasks:Drive', 'arguments': {'goal': None}}}))
    assert (found.name, found.rate, found.episode_steps) == ('mine', 5.0, 10)
    assert (found.images, found.reward) == ((), None)
    assert found.task.arguments == {'goal': None}
    # Of the package, if it is not beside it; a task may have only other arguments.
    found = read_contract(write({
        'include': 'owi535_sim.yaml', 'rate': 5.0, 'task': {'arguments': {'close': 0.04}}}))
    assert found.simulated_clock
    assert found.task.function.endswith(':ReachOnRobot')
    assert found.task.arguments == {'close': 0.04}


def refused(function, *arguments):
    """Return the line for a mistake."""
    line = refusal(ContractError, function, *arguments)
    assert 'mine.yaml: ' in line
    return line


def images(*changes):
    return [{'name': f'eye_{index}', 'topic': f'eye_{index}', 'size': [64, 48], **each}
            for index, each in enumerate(changes)]


# Others are those of any schema: common/test_schema.py.
MISTAKES = [
    ('rate', 0, 'rate: 0 is not allowed: a number >= 0.1'),
    ('rate', None, 'rate: missing'),
    ('topics.odom.type', 'Odometry', "topics: odom: type: 'Odometry' is not allowed: package/msg"),
    ('features.0.from', 'scan', "features[0]: from: 'scan' is not allowed: one of 'odom'"),
    ('features.0.high', -1, 'features[0]: high: -1.0 is not allowed: a number above low, -1'),
    ('features.0.low', float('nan'), 'features[0]: low: nan is not allowed'),
    ('actions.parts.0.levels', [0], 'parts[0]: levels: (0.0,) is not allowed: at least two'),
    ('actions.parts.0.neutral', 2, 'neutral: 2.0 is not allowed: from -1 to 1'),
    ('reset', {}, 'reset: one of service, trajectory, policy, confirmation and none'),
    ('reset', {'trajectory': {'topic': 't', 'positions': {'hip': 0}, 'seconds': 1,
                              'tolerance': 1, 'timeout': 1}},
     "reset: trajectory: positions: 'hip' is not allowed: names of features"),
    ('reward', None, 'reward: missing'),
    ('reward.function', 'os.system', "reward: function: 'os.system' is not allowed: module:name"),
    ('task', {'function': 'a:B'}, 'reward: not beside a task, which has its own'),
    ('success', {}, 'success: one of function and classifier'),
    ('success', {'classifier': 'a.onnx'}, 'success: image: missing'),
    ('success', {'classifier': 'a.onnx', 'image': 'eye'},
     "success: image: 'eye' is not allowed: names of images with a size"),
    ('success', {'classifier': '../a.onnx', 'image': 'camera'},
     "success: classifier: '../a.onnx' is not allowed: a file beside the contract"),
    ('limits', [{'feature': 'hip', 'low': 0, 'high': 1}], "limits[0]: feature: 'hip'"),
    ('images', images({'size': [64, 8]}), 'images[0]: size[1]: 8 is not allowed: a whole number'),
    ('images', images({}, {'size': [64, 64]}),
     'images[1]: size: (64, 64) is not allowed: (64, 48), as of the image eye_0'),
    ('images', images({'name': 'odom'}), "images[0]: name: 'odom' is not allowed: a name that no"),
    ('images', images({'stack': 6}, {'stack': 6}), 'images: stack: 36 is not allowed: at most 35'),
    ('images', images({'type': 'sensor_msgs/msg/PointCloud2'}), 'images[0]: type: '),
    ('copies', 2, 'copies: 2 is not allowed: 1, or a namespace such as robot_{}'),
    ('include', '../other.yaml', "include: '../other.yaml' is not allowed"),
    ('include', 'mine.yaml', "include: 'mine.yaml' is not allowed: a file of the same folder, or "
                             'of this package, such as owi535.yaml, not itself')]


def test_a_mistake_is_one_line_with_file_key_value_and_what_is_allowed(write):
    for place, value, reason in MISTAKES:
        assert reason in refused(read_contract, write(changed(place, value))), place
    for content, reason in (('a: [', 'not YAML'), ('- 1', 'not a mapping'),
                            ('!!python/object:os.system {}', 'not YAML'),
                            ('a: &a {b: *a}', 'not YAML: *a is not allowed')):
        assert reason in refused(read_contract, write(content)), content


def test_a_stick_at_rest_commands_what_is_neutral(write):
    for kind, neutral, reason in (
            ('sensor_msgs/msg/Joy', 0.0, ''), ('geometry_msgs/msg/Twist', 0.5, ''),
            ('sensor_msgs/msg/Joy', 0.5, "takeover: type: 'sensor_msgs/msg/Joy' is not allowed: "
             'geometry_msgs/msg/Twist, as forward has the neutral 0.5, not 0')):
        path = write(changed('actions.parts.0.neutral', neutral) | {'takeover': {
            'topic': 'joy', 'type': kind, 'parts': [{'name': 'forward', 'field': 'axes'}]}})
        if reason:
            assert reason in refused(read_contract, path)
        else:
            assert read_contract(path).takeover.type == kind


def test_success_in_pictures_needs_no_reward_beside_what_it_is_worth(write):
    seen = {'success': {'classifier': 'seen/a.onnx', 'image': 'eye_0'}, 'images': images({})}
    found = read_contract(write(GOOD | seen | {'reward': None, 'success_reward': 1.0}))
    assert make_task(found).reward(None, None) == 0.0
    assert 'reward: missing' in refused(read_contract, write(GOOD | seen | {'reward': None}))
    assert f'mine.yaml: success: classifier: {found.classifier}: no such file' in refused(
        classifier_of, found)


def test_what_changes_its_sign_in_a_mirror_is_said_by_its_name(write):
    write('def speed(before, after, factor):\n    return 0.0\n', 'rewards.py')
    part = GOOD['actions']['parts'][0]
    features = [*GOOD['features'], GOOD['features'][0] | {'name': 'near', 'low': 0}]
    content = GOOD | {'features': features, 'actions': GOOD['actions'] | {
        'parts': [part, part | {'name': 'speed', 'low': -2, 'high': 2}]}}
    space = make_task(read_contract(write(content | {'mirror': ['speed']}))).observation_space
    # Two features, an age, two latest actions.
    assert space.signs.tolist() == [-1, 1, 1, 1, -1, 1, -1]
    assert space.action_signs.tolist() == [1, -1]
    for name, reason in (
            ('sped', "'sped' is not allowed: speed, near, forward; did you mean 'speed'?"),
            ('near', 'near is not allowed, with [0.0, 1.0]: what is from -a to a')):
        contract = read_contract(write(content | {'mirror': [name]}))
        assert f'mine.yaml: mirror: {reason}' in refused(make_task, contract)
    seen = read_contract(write(content | {'mirror': ['speed'], 'images': images({})}))
    assert 'mirror: speed is not allowed with images that are' in refused(make_task, seen)


def test_functions_come_from_a_file_beside_the_contract(write):
    path = write(GOOD)
    write('def speed(before, after, factor):\n    return factor * after["speed"]\nNUMBER = 1\n',
          'rewards.py')
    task = make_task(read_contract(path))
    assert task.reward(None, {'speed': 0.5}) == 1.0
    assert not task.success(None)
    # One that cannot be imported is named.
    write('1 / 0\n', 'broken.py')
    for function, reason in (
            ('nowhere_else:speed', "ModuleNotFoundError: No module named 'nowhere_else'"),
            ('rewards:missing', 'AttributeError'), ('rewards:NUMBER', 'a function or a class'),
            ('broken:speed', 'ZeroDivisionError: division by zero (broken.py:1)')):
        contract = read_contract(write(changed('reward', {'function': function})))
        line = refused(make_task, contract)
        assert f'mine.yaml: reward: {function}' in line
        assert reason in line


def test_the_neutral_action_is_exact_and_what_is_far_outside_is_the_nearest():
    part = {'name': 'a', 'field': 'x', 'unit': '', 'low': -1.0, 'high': 0.85}
    for neutral in (0.0, 0.3, -1.0):
        actions = Actions(topic='a', type='b/msg/C', parts=(
            ActionPart(**part, neutral=neutral),))
        assert actions.values(actions.chosen(np.array([neutral]))[0]).tolist() == [neutral]
    levels = ActionPart(name='a', field='x', unit='', levels=(-1.0, 0.0, 1.0))
    assert levels.nearest(np.array([1e17, math.inf, -1e17, 0.4])).tolist() == [2, 2, 0, 1]

"""env_kwargs and env_wrappers: plain data of limited size; only some wrappers of Gymnasium."""

import pytest

from vdl_ros.envs.env_arguments import parse_kwargs, parse_wrappers
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_wrappers import OF_GYMNASIUM, make_wrappers
from vdl_ros.envs.factory import EnvError, describe, make, spaces
from vdl_ros.envs.registration import REACH


def test_arguments_are_a_json_object():
    assert parse_kwargs('') == parse_kwargs(' ') == parse_kwargs('{}') == {}
    assert parse_kwargs('{"size": 5, "map": [[1, "r"], [0, null]], "a": {"b": true}}') == {
        'size': 5, 'map': [[1, 'r'], [0, None]], 'a': {'b': True}}


@pytest.mark.parametrize('text', [
    '5', '[1]', '"size"', 'null', '{"size": 5', '{size: 5}', '{"size": NaN}', "{'size': 5}",
    '{"size": -Infinity}', '[' * 8000, '{"a": ' * 1000, '{"a":' + '[' * 9 + ']' * 9 + '}',
    '{"a": "' + 'x' * 9000 + '"}', '{"render_mode": "human"}', '{"wrappers": []}',
    '{"vector_kwargs": {}}', '{"max_episode_steps": 3}', '\x1b[2J',
])
def test_other_arguments_are_refused_in_one_line(text):
    with pytest.raises(EnvError, match=r'^env_kwargs: [^\n\x1b]{1,200}$'):
        parse_kwargs(text)


def test_wrappers_are_names_or_a_json_list():
    assert parse_wrappers('') == parse_wrappers('[]') == []
    assert parse_wrappers('A, b.C') == parse_wrappers('["A", "b.C"]') == [('A', {}), ('b.C', {})]
    assert parse_wrappers('[{"A": {"x": [1]}}, "B"]') == [('A', {'x': [1]}), ('B', {})]
    assert parse_wrappers('{"A": {"x": 1}}') == [('A', {'x': 1})]


@pytest.mark.parametrize('text', ['[1]', '[["A"]]', '[{"A": 1}]', '["A"', '[{"A": null}]'])
def test_other_wrappers_are_refused_in_one_line(text):
    with pytest.raises(EnvError, match=r'^env_wrappers: [^\n]{1,200}$'):
        parse_wrappers(text)


def test_wrappers_are_applied_innermost_first():
    shape = spaces(EnvConfig(env_wrappers='[{"FrameStackObservation": {"stack_size": 3}}, '
                                          '"FlattenObservation"]'))[0].shape
    assert shape == (12,)
    assert spaces(EnvConfig(
        env_id='Pendulum-v1', env_wrappers='[{"DiscretizeAction": {"bins": 5}}]'))[1].n == 5


@pytest.mark.parametrize(('text', 'message'), [
    ('[{"FrameStackObservation": {"stack_size": 1000}}]',
     'env_wrappers: FrameStackObservation: 1000 is not allowed: at most 256'),
    ('[{"ReshapeObservation": {"shape": [1, [1e300]]}}]',
     'env_wrappers: ReshapeObservation: 1e+300 is not allowed: at most 256'),
    ('FlattenObservation,FlattenObservation', 'env_wrappers: FlattenObservation is named twice'),
    ('[{"ReshapeObservation": {"shape": [7]}}]', 'env_wrappers: ReshapeObservation: '),
    ('GrayscaleObservation', 'env_wrappers: GrayscaleObservation: ValueError: '),
])
def test_wrappers_that_do_not_fit_are_refused_in_one_line(text, message):
    with pytest.raises(EnvError) as caught:
        make(EnvConfig(env_wrappers=text), seed=0)
    assert str(caught.value).startswith(message)
    assert '\n' not in str(caught.value)


def test_wrappers_that_together_fill_the_memory_are_refused():
    config = EnvConfig(env_id='Humanoid-v5', num_envs=4096, env_wrappers=(
        '[{"FrameStackObservation": {"stack_size": 256}}]'))
    with pytest.raises(EnvError, match='^num_envs: 4096 observations of [0-9]+ bytes are not'):
        make(config, seed=0)


def test_the_wrappers_that_may_be_named_exist():
    assert len(make_wrappers(','.join(OF_GYMNASIUM), 1)) == len(OF_GYMNASIUM)


@pytest.mark.parametrize('env_id', ['ALE/Pong-v5', 'dummy/OBS100-v0'])
def test_environments_with_settings_of_their_own_take_neither(env_id):
    for name, value in (('env_kwargs', '{"name": "x"}'), ('env_wrappers', 'FlattenObservation')):
        with pytest.raises(EnvError, match=f'^{name}: .* is not allowed with env_id {env_id!r}'):
            make(EnvConfig(env_id=env_id, **{name: value}), seed=0)


def test_a_checkpoint_says_with_which_arguments_it_was_trained():
    plain, still = (describe(EnvConfig(env_id=REACH, env_kwargs=text))['environment'] for text in (
        '', '{"randomisation": "none", "reward": "sparse"}'))
    assert plain['twins'] != still['twins']
    assert plain['arm'] == still['arm']


@pytest.mark.parametrize(('text', 'message'), [
    ('{"rate": 0}', 'rate: 0 is not allowed: 1 to 100'),
    ('{"rate": 1e13}', 'rate: 10000000000000.0 is not allowed: 1 to 100'),
    ('{"rate": "fast"}', "rate: 'fast' is not allowed: 1 to 100"),
    ('{"command_delay": 1e14}', 'command_delay: 100000000000000.0 is not allowed: 0 to 2 s, or '
     'the lowest and the highest'),
    ('{"measurement_delay": -1}', 'measurement_delay: -1 is not allowed: 0 to 2 s, or the lowest '
     'and the highest'),
    ('{"randomisation": "x"}', "randomisation: 'x' is not allowed: one of inside, held_out, none"),
])
def test_arguments_of_the_arm_that_are_not_allowed_are_named(text, message):
    with pytest.raises(EnvError) as caught:
        make(EnvConfig(env_id=REACH, env_kwargs=text), seed=0)
    assert str(caught.value).startswith(message)

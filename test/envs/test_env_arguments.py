"""env_kwargs and env_wrappers: plain data of limited size; only some wrappers of Gymnasium."""

import pytest

from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_modules import OF_GYMNASIUM, make_wrappers, parse_kwargs, parse_wrappers
from vdl_ros.envs.factory import describe, make, spaces
from vdl_ros.envs.registration import REACH


def test_arguments_are_a_json_object():
    assert parse_kwargs('') == parse_kwargs(' ') == parse_kwargs('{}') == {}
    assert parse_kwargs('{"size": 5, "map": [[1, "r"], [0, null]], "a": {"b": true}}') == {
        'size': 5, 'map': [[1, 'r'], [0, None]], 'a': {'b': True}}
    for text in ('5', '{"size": 5', "{'size': 5}", '{"size": NaN}', '[' * 8000,
                 '{"a":' + '[' * 9 + ']' * 9 + '}', '{"a": "' + 'x' * 9000 + '"}',
                 '{"render_mode": "human"}', '\x1b[2J'):
        with pytest.raises(EnvError, match=r'^env_kwargs: [^\n\x1b]{1,200}$'):
            parse_kwargs(text)


def test_wrappers_are_names_or_a_json_list():
    assert parse_wrappers('') == parse_wrappers('[]') == []
    assert parse_wrappers('A, b.C') == parse_wrappers('["A", "b.C"]') == [('A', {}), ('b.C', {})]
    assert parse_wrappers('[{"A": {"x": [1]}}, "B"]') == [('A', {'x': [1]}), ('B', {})]
    assert parse_wrappers('{"A": {"x": 1}}') == [('A', {'x': 1})]
    for text in ('[1]', '[["A"]]', '[{"A": 1}]', '["A"', '[{"A": null}]'):
        with pytest.raises(EnvError, match=r'^env_wrappers: [^\n]{1,200}$'):
            parse_wrappers(text)


def test_wrappers_are_applied_innermost_first_and_those_that_may_be_named_exist():
    shape = spaces(EnvConfig(env_wrappers='[{"FrameStackObservation": {"stack_size": 3}}, '
                                          '"FlattenObservation"]'))[0].shape
    assert shape == (12,)
    assert spaces(EnvConfig(
        env_id='Pendulum-v1', env_wrappers='[{"DiscretizeAction": {"bins": 5}}]'))[1].n == 5
    assert len(make_wrappers(','.join(OF_GYMNASIUM), 1)) == len(OF_GYMNASIUM)


def test_what_does_not_fit_is_refused_in_one_line():
    for config, message in (
            ({'env_wrappers': '[{"FrameStackObservation": {"stack_size": 1000}}]'},
             'env_wrappers: FrameStackObservation: 1000 is not allowed: at most 256'),
            ({'env_wrappers': '[{"ReshapeObservation": {"shape": [1, [1e300]]}}]'},
             'env_wrappers: ReshapeObservation: 1e+300 is not allowed: at most 256'),
            ({'env_wrappers': 'FlattenObservation,FlattenObservation'},
             'env_wrappers: FlattenObservation is named twice'),
            ({'env_wrappers': 'GrayscaleObservation'},
             'env_wrappers: GrayscaleObservation: ValueError: '),
            # Environments with settings of their own take neither.
            ({'env_id': 'ALE/Pong-v5', 'env_kwargs': '{"name": "x"}'},
             'env_kwargs: \'{"name": "x"}\' is not allowed with env_id \'ALE/Pong-v5\''),
            ({'env_id': REACH, 'env_kwargs': '{"rate": 1e13}'},
             'rate: 10000000000000.0 is not allowed: 1 to 100'),
            ({'env_id': REACH, 'env_kwargs': '{"randomisation": "x"}'},
             "randomisation: 'x' is not allowed: one of inside, held_out, none")):
        with pytest.raises(EnvError) as caught:
            make(EnvConfig(**config), seed=0)
        assert str(caught.value).startswith(message), config
        assert '\n' not in str(caught.value)


def test_a_checkpoint_says_with_which_arguments_it_was_trained():
    plain, still = (describe(EnvConfig(env_id=REACH, env_kwargs=text))['environment'] for text in (
        '', '{"randomisation": "none", "reward": "sparse"}'))
    assert plain['twins'] != still['twins']
    assert plain['arm'] == still['arm']

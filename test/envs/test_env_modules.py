"""Modules of this host give environments and wrappers; arguments are plain, small data."""

import importlib
import importlib.metadata
import sys

import gymnasium
import pytest
from refusals import refusal

from vdl_ros.common.observation_spaces import MirroredBox
from vdl_ros.common.settings import SettingError
from vdl_ros.envs import env_modules
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import (
    OF_GYMNASIUM,
    import_modules,
    make_wrappers,
    parse_kwargs,
    parse_wrappers,
)
from vdl_ros.envs.factory import describe, make, spaces
from vdl_ros.envs.registration import REACH

# With an argument, a text among the observations, a wrapper and a wrapper of somebody else.
OWN = '''
import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordVideo

class Own(gymnasium.Env):
    def __init__(self, size=2, fail=''):
        if size < 1:
            raise ValueError(f'size: {size} is not\\nallowed')
        if fail:
            self.missing
        assert size < 100, 'too large'
        self.observation_space = spaces.Dict({
            'numbers': spaces.Box(0.0, 1.0, (size,)), 'mission': spaces.Text(5)})
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}

class NoText(gymnasium.ObservationWrapper):
    def __init__(self, env, factor=1.0):
        super().__init__(env)
        self.factor = factor
        self.observation_space = env.observation_space['numbers']

    def observation(self, observation):
        return observation['numbers'] * self.factor

class Vector(SyncVectorEnv):
    def __init__(self, num_envs, size=2, max_episode_steps=None):
        super().__init__([lambda: NoText(Own(size))] * num_envs)

class Unlimited(Vector):
    def __init__(self, num_envs, size=2):
        super().__init__(num_envs, size)

gymnasium.register('own/Unlimited-v0', vector_entry_point=Unlimited)
gymnasium.register(
    'own/Keywords-v0', vector_entry_point=lambda num_envs, **given: Vector(num_envs, **given))
gymnasium.register('own/Registered-v0', entry_point=lambda: NoText(Own()),
                   vector_entry_point=Unlimited, max_episode_steps=9)
gymnasium.register(
    'own/Single-v0', entry_point=lambda: NoText(Own()), vector_entry_point=Unlimited)
gymnasium.register('own/Own-v0', entry_point=Own, max_episode_steps=3)
gymnasium.register('own/Vector-v0', vector_entry_point=Vector)
gymnasium.register('own/Both-v0', entry_point=Own, vector_entry_point=Vector)
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module, to be forgotten after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(env_modules, '_imported', [])
    # Of two texts of one size within a second the second would be taken for the first.
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    known, names = dict(gymnasium.registry), []

    def write(text=OWN, name='own_module'):
        (tmp_path / f'{name}.py').write_text(text)
        names.append(name)
        return EnvModulesConfig(env_modules=name)

    yield write
    gymnasium.registry.clear()
    gymnasium.registry.update(known)
    for name in names:
        sys.modules.pop(name, None)


def config(env_id='own/Own-v0', kwargs='', wrappers='NoText'):
    return EnvConfig(env_id=env_id, num_envs=2, env_kwargs=kwargs, env_wrappers=wrappers)


def refused(given):
    return refusal(EnvError, make, given, seed=0)


def test_the_vector_api_is_used_unless_single_environments_are_wrapped(module):
    import_modules(module())
    for env_id, wrappers, own in (
            ('own/Vector-v0', '', True), ('own/Both-v0', '', True),
            ('own/Both-v0', 'NoText', False)):
        env = make(config(env_id, '{"size": 4}', wrappers), seed=0)
        assert (type(env.unwrapped).__name__ == 'Vector') is own
        assert env.reset()[0].shape == (2, 4)
        env.close()
    assert "doesn't have an entry point" in refused(config('own/Vector-v0'))
    # A limit of steps needs single copies where the vector environment takes none.
    for env_id, limit, own in (
            ('own/Single-v0', 0, True), ('own/Single-v0', 2, False), ('own/Vector-v0', 2, True),
            ('own/Registered-v0', 0, False), ('own/Keywords-v0', 2, True)):
        env = make(EnvConfig(env_id=env_id, num_envs=2, time_limit=limit), seed=0)
        assert isinstance(env.unwrapped, sys.modules['own_module'].Vector) is own
        env.close()
    assert 'max_episode_steps: 2 is not allowed with env_id own/Unlimited-v0' in refused(
        EnvConfig(env_id='own/Unlimited-v0', num_envs=2, time_limit=2))


def test_what_an_environment_refuses_is_one_line(module):
    import_modules(module())
    for given, message in (
            (config(wrappers=''),
             'env_wrappers:=\'[{"FilterObservation": {"filter_keys": ["numbers"]}}]\' leaves it'),
            (config(kwargs='{"size": 0}'), 'with env_kwargs \'{"size": 0}\': size: 0 is not '),
            (config(kwargs='{"sise": 1}'), "got an unexpected keyword argument 'sise'"),
            (config(kwargs='{"size": 100}'), 'AssertionError: too large (own_module.py:13)'),
            (config(kwargs='{"fail": "now"}'), "AttributeError: 'Own' object has no attribute"),
            (config(wrappers='[{"NoText": {"faktor": 2}}]'), 'env_wrappers: NoText: TypeError: '),
            (config(wrappers='NoTxt'), "did you mean 'NoText'?")):
        assert message in refused(given)


def test_only_wrappers_that_a_module_defines_can_be_named_and_nothing_is_imported(module):
    import_modules(module())
    for name in ('RecordVideo', 'own_module.RecordVideo', 'gymnasium.wrappers.RecordVideo', 'Own',
                 'antigravity.Wrapper', 'TransformObservation', '__class__'):
        assert f'env_wrappers: no wrapper {name!r} in the env_modules' in refused(
            config(wrappers=name))
    assert 'antigravity' not in sys.modules
    # One of two modules needs its module.
    import_modules(module(OWN.replace('own/', 'own2/'), 'own_module_2'))
    assert 'NoText\' is not unique: own_module.NoText, own_module_2.NoText' in refused(config())
    make(config(wrappers='own_module_2.NoText'), seed=0).close()


def test_a_module_that_does_not_import_is_named_with_the_cause_or_what_helps(
        module, tmp_path, monkeypatch):
    for text, cause in (
            ('x = (', "SyntaxError: '(' was never closed (own_module.py, line 1)"),
            ('\nraise KeyError("a\\nb")', "KeyError: 'a\\nb' (own_module.py:2)"),
            ('raise SystemExit(3)', 'SystemExit: 3 (own_module.py:1)'),
            ('raise RuntimeError("Context.init() must only be called once")',
             'RuntimeError: Context.init() must only be called once (own_module.py:1); it calls '
             'rclpy.init(), as this node does: its own nodes need a context of their own'),
            ('import not_installed', "ModuleNotFoundError: No module named 'not_installed'"),
            ('import os\nos.missing', "AttributeError: module 'os' has no attribute 'missing' "
             '(own_module.py:2); if it needs other versions of packages: docs/environments.md')):
        importlib.invalidate_caches()
        with pytest.raises(SettingError) as caught:
            import_modules(module(text))
        assert str(caught.value).startswith(
            f"env_modules: 'own_module' cannot be imported: {cause}")
        assert '\n' not in str(caught.value)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match="^env_modules: 'nowhere.envs' cannot be imported: No "
                                           "module named 'nowhere'; install it, or add its"):
        import_modules(EnvModulesConfig(env_modules='nowhere.envs'))


def test_only_names_of_modules_are_allowed_and_the_folder_is_not_searched(tmp_path, monkeypatch):
    for name in ('../own', 'a b', 'a:B', '1a', 'a..b', '.a', 'x' * 10 + '\x1b'):
        with pytest.raises(SettingError, match='^env_modules: .* is not allowed: names of mod'):
            import_modules(EnvModulesConfig(env_modules=f'os,{name}'))
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'nowhere.py').touch()
    with pytest.raises(SettingError, match='in this folder: export PYTHONPATH=.PWD:.PYTHONPATH$'):
        import_modules(EnvModulesConfig(env_modules=' nowhere, os'))


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
    # Nobody knows what becomes of a task's mirror image.
    assert isinstance(spaces(EnvConfig(env_id=REACH))[0], MirroredBox)
    wrapped = spaces(EnvConfig(env_id=REACH, env_wrappers='[{"ClipReward": {"min_reward": 0}}]'))
    assert not isinstance(wrapped[0], MirroredBox)


def test_what_does_not_fit_is_refused_in_one_line():
    for settings, message in (
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
        assert refused(EnvConfig(**settings)).startswith(message), settings


def test_a_checkpoint_says_with_which_arguments_it_was_trained():
    plain, still = (describe(EnvConfig(env_id=REACH, env_kwargs=text))['environment'] for text in (
        '', '{"randomisation": "none", "reward": "sparse"}'))
    assert plain['twins'] != still['twins']
    assert plain['arm'] == still['arm']

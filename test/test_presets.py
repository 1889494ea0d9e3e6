"""Presets: they stand between the defaults and what the user says, and all of them work."""

import pytest
import yaml

from vdl_ros import presets
from vdl_ros.envs.config import EnvConfig
from vdl_ros.rl.config import TrainConfig, verify
from vdl_ros.settings import build, select, settings_of


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(presets, 'folder', lambda: tmp_path)

    def write(name, env_ids, **settings):
        (tmp_path / name).write_text(yaml.safe_dump({'env_ids': env_ids, 'settings': settings}))
    return write


@pytest.mark.parametrize('path', sorted(presets.folder().glob('*.yaml')), ids=lambda p: p.stem)
def test_every_preset_of_the_package_can_be_used(path):
    content = yaml.safe_load(path.read_text())
    assert content.keys() == {'env_ids', 'settings'}
    assert content['env_ids']
    known = settings_of(EnvConfig, TrainConfig)
    assert content['settings'].keys() <= known.keys()
    assert 'env_id' not in content['settings']
    select(EnvConfig, content['settings'])
    verify(select(TrainConfig, content['settings']))


def test_cartpole_and_atari_have_one():
    assert presets.preset('CartPole-v1')['stop_at_return'] == 475.0
    assert presets.preset('ALE/Pong-v5')['reward_transform'] == 'abs_one'
    assert presets.preset('vdl/Counter-v0') == {}


def test_a_pattern_is_as_of_a_shell_and_case_counts(tasks):
    tasks('a.yaml', ['Cart*-v?', 'Exact-v0'], seed=4)
    assert presets.preset('CartPole-v1') == presets.preset('Exact-v0') == {'seed': 4}
    for other in ('CartPole-v11', 'cartpole-v1', 'Exact-v00', 'MyCartPole-v1'):
        assert presets.preset(other) == {}


def test_the_first_file_by_name_wins(tasks):
    tasks('b.yaml', ['*'], seed=2)
    tasks('a.yaml', ['Cart*'], seed=1)
    assert presets.preset('CartPole-v1') == {'seed': 1}
    assert presets.preset('Other-v1') == {'seed': 2}


def test_what_the_user_says_wins(tasks):
    tasks('a.yaml', ['CartPole-v1'], seed=2, discount=0.5)
    assert presets.resolve({'env_id': 'CartPole-v1', 'seed': 9}) == {
        'env_id': 'CartPole-v1', 'seed': 9, 'discount': 0.5}
    assert presets.resolve({'env_id': 'Other-v0', 'seed': 9}) == {'env_id': 'Other-v0', 'seed': 9}


def test_without_an_environment_it_is_the_default_one(tasks):
    tasks('a.yaml', ['CartPole-v1'], seed=2)
    assert presets.resolve({}) == {'seed': 2}
    assert presets.resolve({}, default_env_id='Other-v0') == {}
    assert build(EnvConfig, {}).env_id == 'CartPole-v1'


def test_a_resumed_run_has_its_own_settings_and_no_preset(tasks):
    tasks('a.yaml', ['CartPole-v1'], seed=2, discount=0.5)
    saved = {'env_id': 'CartPole-v1', 'seed': 7}
    assert presets.resolve({'total_steps': 5}, saved) == {
        'env_id': 'CartPole-v1', 'seed': 7, 'total_steps': 5}
    assert saved == {'env_id': 'CartPole-v1', 'seed': 7}


def test_a_preset_is_the_callers_to_change(tasks):
    tasks('a.yaml', ['*'], seed=2)
    presets.preset('x')['seed'] = 3
    assert presets.preset('x') == {'seed': 2}

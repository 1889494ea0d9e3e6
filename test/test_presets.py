"""Presets: they stand between the defaults and what the user says, and all of them work."""

import itertools
from pathlib import Path

import pytest
import yaml

from vdl_ros import presets
from vdl_ros.common.settings import SettingError, build, select, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.algorithm_config import ALGORITHM_SETTINGS, make_algorithm_config, verify
from vdl_ros.rl.train_config import ALGORITHMS, NETWORKS, TrainConfig
from vdl_ros.ros.parameter_files import EVERY_NODE, read_parameter_file

TASKS = sorted((presets.folder() / 'tasks').glob('*.yaml'))
# What a preset is chosen by.
FORBIDDEN = {'env_id', 'algorithm'}


def content_of(path: Path):
    return yaml.safe_load(path.read_text())


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """Return a function that writes a task's file."""
    monkeypatch.setattr(presets, 'folder', lambda: tmp_path)
    (tmp_path / 'tasks').mkdir()

    def write(name, env_ids, algorithms=None, **settings):
        content = {'env_ids': env_ids, 'settings': settings}
        if algorithms is not None:
            content['algorithms'] = algorithms
        (tmp_path / 'tasks' / name).write_text(yaml.safe_dump(content))
    return write


@pytest.fixture
def algorithm_file(tasks, tmp_path):
    """Return a function that writes an algorithm's file."""
    (tmp_path / 'algorithms').mkdir()

    def write(algorithm, **settings):
        (tmp_path / 'algorithms' / f'{algorithm}.yaml').write_text(
            yaml.safe_dump({'/**': {'ros__parameters': settings}}))
    return write


def test_there_are_presets_of_all_algorithms_and_of_some_tasks():
    found = {path.stem for path in (presets.folder() / 'algorithms').glob('*.yaml')}
    assert found == set(ALGORITHMS) == set(ALGORITHM_SETTINGS)
    assert {path.stem for path in TASKS} >= {'atari', 'cartpole', 'mujoco'}


@pytest.mark.parametrize('path', TASKS, ids=lambda path: path.stem)
def test_every_task_of_the_package_says_what_is_known(path):
    content = content_of(path)
    assert content.keys() <= {'env_ids', 'settings', 'algorithm', 'algorithms', 'networks'}
    assert content['env_ids']
    assert content.get('algorithm', 'impala') in ALGORITHMS
    shared = settings_of(EnvConfig, TrainConfig).keys() - FORBIDDEN
    assert content['settings'].keys() <= shared
    for algorithm, settings in content.get('algorithms', {}).items():
        own = settings_of(ALGORITHM_SETTINGS[algorithm]).keys()
        assert settings.keys() <= shared | own, algorithm
    for network, settings in content.get('networks', {}).items():
        assert network in NETWORKS
        assert settings.keys() <= shared - {'network'}, network


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_every_algorithm_of_the_package_says_what_is_known(algorithm):
    sections = read_parameter_file(presets.folder() / 'algorithms' / f'{algorithm}.yaml')
    assert sections.keys() == {EVERY_NODE}
    known = settings_of(TrainConfig, ALGORITHM_SETTINGS[algorithm]).keys() - FORBIDDEN
    assert sections[EVERY_NODE].keys() <= known


@pytest.mark.parametrize('algorithm', ALGORITHMS)
@pytest.mark.parametrize('env_id', [
    'vdl/Counter-v0', *itertools.chain(*(content_of(path)['env_ids'] for path in TASKS))])
def test_every_preset_of_the_package_can_be_used_with_every_algorithm(env_id, algorithm):
    env_id = env_id.replace('*', 'v1')
    values = presets.resolve({'env_id': env_id, 'algorithm': algorithm})
    known = settings_of(EnvConfig, TrainConfig, ALGORITHM_SETTINGS[algorithm])
    assert values.keys() <= known.keys()
    build(EnvConfig, {name: value for name, value in values.items()
                      if name in settings_of(EnvConfig)})
    train = select(TrainConfig, values)
    assert train.algorithm == algorithm
    verify(train, make_algorithm_config(train, values))


def test_cartpole_and_atari_have_one():
    for algorithm in ALGORITHMS:
        assert presets.preset('CartPole-v1', algorithm)['stop_at_return'] == 475.0
        assert presets.preset('ALE/Pong-v5', algorithm)['reward_transform'] == 'abs_one'
        of_all = read_parameter_file(presets.folder() / 'algorithms' / f'{algorithm}.yaml')
        assert presets.preset('vdl/Counter-v0', algorithm) == of_all[EVERY_NODE]


def test_a_pattern_is_as_of_a_shell_and_case_counts(tasks):
    tasks('a.yaml', ['Cart*-v?', 'Exact-v0'], seed=4)
    for fitting in ('CartPole-v1', 'Exact-v0'):
        assert presets.preset(fitting, 'impala') == {'seed': 4}
    for other in ('CartPole-v11', 'cartpole-v1', 'Exact-v00', 'MyCartPole-v1'):
        assert presets.preset(other, 'impala') == {}


def test_the_first_file_by_name_wins(tasks):
    tasks('b.yaml', ['*'], {'ppo': {'ppo_clip': 0.3}}, seed=2)
    tasks('a.yaml', ['Cart*'], seed=1)
    assert presets.preset('CartPole-v1', 'ppo') == {'seed': 1}
    assert presets.preset('Other-v1', 'ppo') == {'seed': 2, 'ppo_clip': 0.3}


def test_a_task_knows_better_than_an_algorithm_and_both_together_best(tasks, algorithm_file):
    algorithm_file('ppo', batch_size=1, discount=0.1, entropy_cost=0.1, ppo_clip=0.1)
    algorithm_file('dqn', batch_size=7)
    tasks('a.yaml', ['Cart*'], {'ppo': {'discount': 0.3, 'ppo_clip': 0.3}, 'dqn': {'n_step': 3}},
          discount=0.2, entropy_cost=0.2)
    assert presets.preset('CartPole-v1', 'ppo') == {
        'batch_size': 1, 'entropy_cost': 0.2, 'discount': 0.3, 'ppo_clip': 0.3}
    assert presets.preset('CartPole-v1', 'dqn') == {
        'batch_size': 7, 'entropy_cost': 0.2, 'discount': 0.2, 'n_step': 3}
    assert presets.preset('CartPole-v1', 'impala') == {'entropy_cost': 0.2, 'discount': 0.2}
    assert presets.preset('Other-v1', 'ppo') == {
        'batch_size': 1, 'discount': 0.1, 'entropy_cost': 0.1, 'ppo_clip': 0.1}
    # The user knows best of all.
    found = presets.resolve({'env_id': 'CartPole-v1', 'algorithm': 'ppo', 'discount': 0.9})
    assert found == {'env_id': 'CartPole-v1', 'algorithm': 'ppo', 'batch_size': 1,
                     'entropy_cost': 0.2, 'discount': 0.9, 'ppo_clip': 0.3}


def test_a_network_that_the_user_names_has_settings_of_its_own():
    given = {'env_id': 'ALE/Pong-v5', 'algorithm': 'a3c'}
    seen = {'frame_stack': 1, 'screen_size': 42, 'frame_processing': 'universe'}
    found = presets.resolve(given | {'network': 'universe', 'unroll_length': 7})
    assert seen.items() <= found.items()
    assert (found['lstm_size'], found['unroll_length']) == (256, 7)
    for others in ({}, {'network': 'nature'}):
        assert not seen.keys() & presets.resolve(given | others).keys()


def test_without_an_algorithm_it_is_the_default_one(tasks, algorithm_file):
    algorithm_file('impala', batch_size=3)
    algorithm_file('ppo', batch_size=4)
    tasks('a.yaml', ['Cart*'], {'impala': {'rho_clip': 2.0}, 'ppo': {'ppo_clip': 0.3}})
    assert presets.resolve({}) == {'batch_size': 3, 'rho_clip': 2.0}
    assert build(TrainConfig, {}).algorithm == 'impala'


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


def test_a_resumed_run_has_its_own_settings_and_no_preset(tasks, algorithm_file):
    tasks('a.yaml', ['CartPole-v1'], {'ppo': {'ppo_clip': 0.3}}, seed=2, discount=0.5)
    algorithm_file('ppo', batch_size=4)
    saved = {'env_id': 'CartPole-v1', 'seed': 7, 'algorithm': 'ppo'}
    assert presets.resolve({'total_steps': 5}, saved) == {**saved, 'total_steps': 5}
    assert saved == {'env_id': 'CartPole-v1', 'seed': 7, 'algorithm': 'ppo'}
    # Its algorithm is the saved one.
    assert presets.resolve({'ppo_clip': 0.1}, saved) == {**saved, 'ppo_clip': 0.1}
    with pytest.raises(SettingError, match="^n_step: 3 is of algorithm 'dqn' and 'sac', and"):
        presets.resolve({'n_step': 3}, saved)


@pytest.mark.parametrize('more', [
    {}, {'ppo_clip': 0.1}, {'ppo_minibatches': 4, 'batch_size': 1}], ids=str)
def test_a_run_does_not_go_on_with_another_algorithm(tasks, more):
    saved = {'algorithm': 'a3c', 'unroll_length': 1}
    with pytest.raises(SettingError) as error:
        presets.resolve({'algorithm': 'ppo', **more}, saved)
    assert str(error.value) == (
        "algorithm: 'ppo' is not allowed: the run was trained with 'a3c' and cannot be resumed "
        'with another')
    same = {'algorithm': 'a3c', 'total_steps': 5}
    assert presets.resolve(same, saved) == {**saved, 'total_steps': 5}


def test_a_preset_is_the_callers_to_change(tasks, algorithm_file):
    tasks('a.yaml', ['*'], {'ppo': {'ppo_clip': 0.3}}, seed=2)
    algorithm_file('ppo', batch_size=4)
    expected = {'seed': 2, 'batch_size': 4, 'ppo_clip': 0.3}
    found = presets.preset('x', 'ppo')
    found['seed'] = found['ppo_clip'] = found['batch_size'] = 3
    assert presets.preset('x', 'ppo') == expected


OWNERS = {name: [other for other, settings in ALGORITHM_SETTINGS.items()
                 if name in settings_of(settings)]
          for name in settings_of(*ALGORITHM_SETTINGS.values())}


@pytest.mark.parametrize('name', OWNERS)
def test_a_setting_of_another_algorithm_is_refused_with_all_names(tasks, name):
    value = settings_of(*ALGORITHM_SETTINGS.values())[name].default
    owners = ' and '.join(map(repr, OWNERS[name]))
    for algorithm in ALGORITHMS:
        given = {'algorithm': algorithm, name: value}
        if algorithm in OWNERS[name]:
            assert presets.resolve(given) == given
            continue
        with pytest.raises(SettingError) as error:
            presets.resolve(given)
        assert str(error.value) == (
            f'{name}: {value!r} is of algorithm {owners}, and algorithm is {algorithm!r}')


def test_a_setting_of_another_algorithm_is_refused_without_an_algorithm_too(tasks):
    with pytest.raises(SettingError, match=(
            "^ppo_clip: 0.1 is of algorithm 'ppo', and algorithm is 'impala'$")):
        presets.resolve({'ppo_clip': 0.1})


def test_the_algorithm_of_a_task_counts_unless_another_is_given_or_resumed():
    reach = 'vdl_ros/OWI535Reach-v0'
    assert presets.resolve({'env_id': reach})['algorithm'] == 'ppo'
    assert presets.resolve({'env_id': reach})['ppo_epochs'] == 4
    given = presets.resolve({'env_id': reach, 'algorithm': 'impala'})
    assert given['algorithm'] == 'impala'
    assert 'ppo_epochs' not in given
    resumed = presets.resolve({}, {'algorithm': 'a3c', 'env_id': reach}, default_env_id=reach)
    assert resumed['algorithm'] == 'a3c'
    assert 'algorithm' not in presets.resolve({'env_id': 'CartPole-v1'})

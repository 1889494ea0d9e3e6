"""Presets: they stand between the defaults and what the user says, and all of them work."""

import functools
import itertools

import pytest
import yaml

from vdl_ros.common.settings import SettingError, select, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.recipes import config_file
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    ALGORITHMS,
    NETWORKS,
    TrainConfig,
    make_algorithm_config,
    verify,
)
from vdl_ros.ros.parameters import EVERY_NODE, read_parameter_file

TASKS = {path.stem: yaml.safe_load(path.read_text())
         for path in sorted((config_file.folder() / 'tasks').glob('*.yaml'))}
# What a preset is chosen by.
FORBIDDEN = {'env_id', 'algorithm'}
SHARED = settings_of(EnvConfig, TrainConfig).keys() - FORBIDDEN


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """Return a function that writes a task's file."""
    monkeypatch.setattr(config_file, 'folder', lambda: tmp_path)
    for name in ('tasks', 'algorithms'):
        (tmp_path / name).mkdir()

    def write(name, env_ids, algorithms=None, **settings):
        (tmp_path / 'tasks' / name).write_text(yaml.safe_dump(
            {'env_ids': env_ids, 'settings': settings, 'algorithms': algorithms or {}}))
    return write


@pytest.fixture
def algorithm_file(tasks, tmp_path):
    """Return a function that writes an algorithm's file."""
    def write(algorithm, **settings):
        (tmp_path / 'algorithms' / f'{algorithm}.yaml').write_text(
            yaml.safe_dump({'/**': {'ros__parameters': settings}}))
    return write


def test_every_file_of_the_package_says_what_is_known():
    for task, content in TASKS.items():
        assert content.keys() <= {
            'env_ids', 'settings', 'environments', 'algorithm', 'algorithms', 'networks'}
        assert content['env_ids'], task
        assert content.get('algorithm', 'impala') in ALGORITHMS, task
        assert content['settings'].keys() <= SHARED, task
        for env_id, settings in content.get('environments', {}).items():
            assert config_file._task(env_id) == content, env_id
            assert settings.keys() <= SHARED, env_id
        for algorithm, settings in content.get('algorithms', {}).items():
            own = settings_of(ALGORITHM_SETTINGS[algorithm]).keys()
            assert settings.keys() <= SHARED | own, (task, algorithm)
        for network, settings in content.get('networks', {}).items():
            assert network in NETWORKS, task
            assert settings.keys() <= SHARED - {'network'}, (task, network)
    files = {path.stem: path for path in (config_file.folder() / 'algorithms').glob('*.yaml')}
    assert set(files) == set(ALGORITHMS) == set(ALGORITHM_SETTINGS)
    for algorithm, path in files.items():
        (section, settings), = read_parameter_file(path).items()
        assert section == EVERY_NODE, algorithm
        known = settings_of(TrainConfig, ALGORITHM_SETTINGS[algorithm]).keys() - FORBIDDEN
        assert settings.keys() <= known, algorithm


def test_every_preset_of_the_package_can_be_used(monkeypatch):
    """With the algorithms that its task names, and with one more, in turn."""
    # To read a file each time would take seconds.
    monkeypatch.setattr(config_file, 'read_yaml', functools.cache(config_file.read_yaml))
    others = itertools.cycle(ALGORITHMS)
    cases = {('vdl/Counter-v0', algorithm) for algorithm in ALGORITHMS} | {
        (env_id.replace('*', 'v1'), algorithm)
        for content in TASKS.values() for env_id in content['env_ids']
        for algorithm in (next(others), *content.get('algorithms', {}))}
    for env_id, algorithm in sorted(cases):
        values = config_file.resolve({'env_id': env_id, 'algorithm': algorithm})
        select(EnvConfig, values)
        train = select(TrainConfig, values)
        assert train.algorithm == algorithm, env_id
        verify(train, make_algorithm_config(train, values))
    assert config_file.preset('CartPole-v1', 'ppo')['stop_at_return'] == 475.0
    assert config_file.preset('ALE/Pong-v5', 'a3c')['reward_transform'] == 'abs_one'
    assert 'episodic_life' not in config_file.preset('ALE/Pong-v5', 'a3c')
    assert config_file.preset('ALE/Breakout-v5', 'a3c')['episodic_life']


def test_a_robot_has_the_preset_of_a_contract_that_its_own_includes(tmp_path):
    for name, base in (('corner', 'owi535_sim'), ('far_corner', 'corner'), ('broken', '[')):
        (tmp_path / f'{name}.yaml').write_text(f'include: {base}.yaml\n')
    expected = config_file.preset('robot/owi535_sim', 'sac')
    assert expected['cloning_cost'] == 3.0
    others = config_file.preset('robot/other', 'sac')
    for name, settings in (('corner', expected), ('far_corner', expected), ('broken', others)):
        assert config_file.preset(f'robot/{name}', 'sac', robots=str(tmp_path)) == settings, name


def test_the_actor_of_a_robot_acts_on_while_the_learner_finishes_an_update():
    # With fewer than two unrolls beside those of an update each unroll had a late action.
    for name, algorithm in (('other', 'ppo'), ('other', 'sac'), ('other', 'dqn'),
                            ('owi535_push', 'sac'), ('owi535_camera', 'sac')):
        train = select(TrainConfig, config_file.preset(f'robot/{name}', algorithm))
        assert train.credit >= train.batch_size + 2, (name, algorithm)


def test_the_first_file_by_name_whose_pattern_fits_wins_and_case_counts(tasks):
    tasks('b.yaml', ['*'], {'ppo': {'ppo_clip': 0.3}}, seed=2)
    tasks('a.yaml', ['Cart*-v?', 'Exact-v0'], seed=1)
    for fitting in ('CartPole-v1', 'Exact-v0'):
        assert config_file.preset(fitting, 'ppo') == {'seed': 1}, fitting
    for other in ('CartPole-v11', 'cartpole-v1', 'Exact-v00', 'MyCartPole-v1'):
        found = config_file.preset(other, 'ppo')
        assert found == {'seed': 2, 'ppo_clip': 0.3}, other
        # It is the caller's to change.
        found['seed'] = found['ppo_clip'] = 3


def test_a_task_knows_better_than_an_algorithm_and_both_together_best(tasks, algorithm_file):
    algorithm_file('ppo', batch_size=1, discount=0.1, entropy_cost=0.1, ppo_clip=0.1)
    algorithm_file('dqn', batch_size=7)
    tasks('a.yaml', ['Cart*'], {'ppo': {'discount': 0.3, 'ppo_clip': 0.3}, 'dqn': {'n_step': 3}},
          discount=0.2, entropy_cost=0.2)
    assert config_file.preset('CartPole-v1', 'ppo') == {
        'batch_size': 1, 'entropy_cost': 0.2, 'discount': 0.3, 'ppo_clip': 0.3}
    assert config_file.preset('CartPole-v1', 'dqn') == {
        'batch_size': 7, 'entropy_cost': 0.2, 'discount': 0.2, 'n_step': 3}
    assert config_file.preset('CartPole-v1', 'impala') == {'entropy_cost': 0.2, 'discount': 0.2}
    assert config_file.preset('Other-v1', 'ppo') == {
        'batch_size': 1, 'discount': 0.1, 'entropy_cost': 0.1, 'ppo_clip': 0.1}
    # The user knows best of all.
    found = config_file.resolve({'env_id': 'CartPole-v1', 'algorithm': 'ppo', 'discount': 0.9})
    assert found == {'env_id': 'CartPole-v1', 'algorithm': 'ppo', 'batch_size': 1,
                     'entropy_cost': 0.2, 'discount': 0.9, 'ppo_clip': 0.3}


def test_a_network_that_the_user_names_has_settings_of_its_own():
    given = {'env_id': 'ALE/Pong-v5', 'algorithm': 'a3c'}
    seen = {'frame_stack': 1, 'screen_size': 42, 'frame_processing': 'universe'}
    found = config_file.resolve(given | {'network': 'universe', 'unroll_length': 7})
    assert seen.items() <= found.items()
    assert (found['lstm_size'], found['unroll_length']) == (256, 7)
    for others in ({}, {'network': 'nature'}):
        assert not seen.keys() & config_file.resolve(given | others).keys()
    for algorithm in ('sac', 'bc'):
        found = config_file.resolve(given | {'network': 'universe', 'algorithm': algorithm})
        assert seen.items() <= found.items()
        assert 'lstm_size' not in found, 'it has no memory'


def test_a_resumed_run_has_its_own_settings_algorithm_and_no_preset(tasks, algorithm_file):
    tasks('a.yaml', ['CartPole-v1'], {'ppo': {'ppo_clip': 0.3}}, seed=2, discount=0.5)
    algorithm_file('ppo', batch_size=4)
    saved = {'env_id': 'CartPole-v1', 'seed': 7, 'algorithm': 'ppo'}
    for given in ({'total_steps': 5}, {'ppo_clip': 0.1}, {'algorithm': 'ppo'}):
        assert config_file.resolve(given, dict(saved)) == {**saved, **given}
    with pytest.raises(SettingError, match="^algorithm: 'impala' is not allowed: the run was "
                                           "trained with 'ppo' and cannot be resumed with "
                                           'another$'):
        config_file.resolve({'algorithm': 'impala', 'rho_clip': 2.0}, saved)


def test_a_setting_of_another_algorithm_is_refused_with_all_names():
    with pytest.raises(SettingError, match=(
            "^n_step: 3 is of algorithm 'dqn' and 'sac', and algorithm is 'ppo'$")):
        config_file.resolve({'algorithm': 'ppo', 'n_step': 3})
    assert config_file.resolve({'algorithm': 'dqn', 'n_step': 3})['n_step'] == 3


def test_the_algorithm_of_a_task_counts_unless_another_is_given_or_resumed():
    reach = 'vdl_ros/OWI535Reach-v0'
    found = config_file.resolve({'env_id': reach})
    assert (found['algorithm'], found['ppo_epochs']) == ('ppo', 4)
    given = config_file.resolve({'env_id': reach, 'algorithm': 'impala'})
    assert given['algorithm'] == 'impala'
    assert 'ppo_epochs' not in given
    resumed = config_file.resolve({}, {'algorithm': 'a3c', 'env_id': reach}, default_env_id=reach)
    assert resumed['algorithm'] == 'a3c'
    assert 'algorithm' not in config_file.resolve({'env_id': 'CartPole-v1'})

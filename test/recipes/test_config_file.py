"""Settings in a YAML file: by hand or of a run; each wrong one is named in one line."""

import pytest
import yaml

from vdl_ros.common.settings import SettingError, as_dict, settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.recipes import config_file
from vdl_ros.recipes.config_file import read_config, saved_settings, settings_of_init
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.ros.node_settings import ProcessConfig


def test_values_have_the_type_of_their_setting_and_what_is_written_reads_back(tmp_path):
    file = tmp_path / 'my.yaml'
    file.write_text('''
env_id: own/Own-v0
env_modules: [own, own.wrappers]
env_kwargs: {size: 5, map: [[1, 0]]}
env_wrappers:
- FilterObservation: {filter_keys: [a, b]}
- FlattenObservation
learning_rate: 1e-3       # a text, in YAML 1.1
discount: 1
synchronous: yes
ppo_clip: 0.1
num_actors: 4
max_policy_lag: 3         # the name in version 0.2.0
''')
    assert read_config(file, ProcessConfig) == {
        'env_id': 'own/Own-v0', 'env_modules': 'own,own.wrappers',
        'env_kwargs': '{"size": 5, "map": [[1, 0]]}',
        'env_wrappers': '[{"FilterObservation": {"filter_keys": ["a", "b"]}}, '
                        '"FlattenObservation"]',
        'learning_rate': 0.001, 'discount': 1.0, 'synchronous': True, 'ppo_clip': 0.1,
        'num_actors': 4, 'max_in_flight': 3}
    file.write_text(yaml.safe_dump(as_dict(EnvConfig())))
    assert read_config(file) == as_dict(EnvConfig())


def test_what_a_run_saved_starts_another_one_like_it(tmp_path):
    env, run = EnvConfig(env_id='Acrobot-v1', env_kwargs='{"a": 1}'), RunConfig(
        run_dir=str(tmp_path / 'run'), num_actors=3)
    folder = RunFolder(tmp_path / 'run')
    folder.open(as_dict(env, run) | {'env_modules': 'own', 'environment': {'task': [1]}}, 0)
    found = read_config(tmp_path / 'run' / 'config.yaml')
    assert found.items() >= {**as_dict(env), 'num_actors': 3, 'env_modules': 'own'}.items()
    # Another run has another folder, and learns from actors.
    of_this_run = {'run_dir', 'resume', 'relearn', 'learner_rank', 'group_address'}
    assert not found.keys() & of_this_run
    assert saved_settings(tmp_path / 'run', {}).keys() == as_dict(env).keys() | (
        as_dict(run).keys() - of_this_run - {'device', 'num_actors', 'num_learners', 'init'}
    ) | {'scale_actions'}
    # A run of version 0.2.0.
    (tmp_path / 'run' / 'config.yaml').write_text('max_policy_lag: 3')
    assert saved_settings(tmp_path / 'run', {}) == {'max_in_flight': 3, 'scale_actions': False}
    with pytest.raises(SettingError, match='init_encoder: true is not allowed without init'):
        config_file.settings_of_init({'init_encoder': True})


def test_a_resumed_folder_names_no_file_module_or_program(tmp_path):
    # It may be a stranger's. Of the texts it has only these.
    texts = {name for name, each in settings_of(*config_file._SETTINGS).items()
             if each.type is str and not each.choices}
    content = dict.fromkeys([*texts, 'launch_id', 'setup', 'unknown'], 'x')
    content |= {'discount': 0.5, 'tracker': 'mlflow'}
    (tmp_path / 'config.yaml').write_text(yaml.safe_dump(content))
    files = {'demonstrations': 'mine', 'adversarial_checkpoint': ''}
    assert saved_settings(tmp_path, files).keys() == {
        'env_id', 'env_kwargs', 'env_wrappers', 'bodies', 'adversarial_mode', 'tracker_project',
        'discount', 'tracker', 'scale_actions'}
    # What the run needs is asked for.
    with pytest.raises(SettingError, match="^demonstrations: missing: .*, which has 'x'"):
        saved_settings(tmp_path, {})
    # Nor is the value of a choice, such as an algorithm, the name of a file.
    (tmp_path / 'config.yaml').write_text('algorithm: /tmp/ppo')
    with pytest.raises(SettingError, match="^algorithm: '/tmp/ppo' is not allowed"):
        settings_of_init({'init': str(tmp_path)})


def test_an_error_names_the_file_and_the_setting_in_one_line(tmp_path):
    file = tmp_path / 'my.yaml'
    for text, message in (
            ('learnin_rate: 1', "learnin_rate: no such setting; did you mean 'learning_rate'?"),
            ('discount: 1.5', 'discount: 1.5 is not allowed: a number from 0 to 1'),
            ('num_envs: [1]', 'num_envs: [1] is not allowed: a whole number from 1 to 4096'),
            ('{1: 2}', '1: no such setting'),
            ('', 'is not a mapping'),
            ('env_id: [', 'not YAML: ')):
        file.write_text(text)
        with pytest.raises(SettingError) as caught:
            read_config(file)
        found = str(caught.value)
        assert found.startswith(f'config: {file}'), text
        assert message in found, text
        assert '\n' not in found, text
    with pytest.raises(SettingError, match='^config: .*/none.yaml: cannot be read: No such file'):
        read_config(tmp_path / 'none.yaml')

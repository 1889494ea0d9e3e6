"""EnvConfig: allowed values and messages."""

import pytest

from vdl_ros.common.settings import SettingError, build, settings_of
from vdl_ros.envs.env_config import EnvConfig

ATARI_ONLY = {
    'frame_skip', 'frame_stack', 'screen_size', 'noop_max', 'sticky_actions', 'episodic_life',
    'full_action_space', 'frame_processing',
}


def test_defaults_are_allowed():
    assert build(EnvConfig, {}) == EnvConfig()


def test_descriptions_of_atari_settings_start_with_atari_only():
    found = {name for name, each in settings_of(EnvConfig).items()
            if each.doc.startswith('Atari only: ')}
    assert found == ATARI_ONLY


@pytest.mark.parametrize(('name', 'value'), [
    ('num_envs', 0), ('time_limit', -1), ('frame_skip', 0), ('frame_stack', 0),
    ('noop_max', -1), ('sticky_actions', 1.5), ('sticky_actions', float('nan')),
    ('screen_size', 0), ('episodic_life', 1), ('num_envs', 4097), ('time_limit', 2**31),
    ('frame_skip', 101), ('frame_stack', 65), ('noop_max', 1001), ('noop_max', 10**400),
])
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        build(EnvConfig, {name: value})

"""The boundary command: its files, and one line for errors."""

import threading

import numpy as np
import pytest
from PIL import Image

from vdl_ros import local_training
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.tools import boundary


@pytest.fixture
def checkpoint(tmp_path):
    config = TrainConfig(network='universe', total_steps=20, unroll_length=5)
    local_training.train(
        EnvConfig(env_id='vdl_ros/CartPolePixels-v0', num_envs=2), config,
        make_algorithm_config(config, {}), tmp_path / 'run', threading.Event())
    return tmp_path / 'run' / 'checkpoint.pt'


def test_every_frame_is_written_in_three_forms_and_an_error_is_one_line(
        tmp_path, capsys, checkpoint):
    output = tmp_path / 'out'
    options = ['--checkpoint', str(checkpoint), '--frames', '2', '--grid', '11',
               '--output', str(output)]
    capsys.readouterr()
    assert boundary.main(options) == 0
    assert {path.name for path in output.glob('[!.]*')} == {
        f'{number:03}.{ending}' for number in range(2) for ending in ('npy', 'png', 'pdf')}
    actions = np.load(output / '001.npy')
    assert actions.shape == (11, 11)
    assert set(np.unique(actions)) <= {0, 1}
    with Image.open(output / '001.png') as picture:
        assert len(picture.convert('RGB').getcolors(1 << 20)) > 20
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert boundary.main(options) == 2
    assert capsys.readouterr().err == f'boundary: --output: {output} is not empty\n'

    for change, message in (
            (['--adversarial_mode', 'fgsmm'], "adversarial_mode: 'fgsmm' is not allowed"),
            (['--adversarial_epsilon', 'big'],
             "adversarial_epsilon: 'big' is not allowed: a number"),
            (['--checkpoint', 'nowhere.pt'], 'nowhere.pt')):
        assert boundary.main([*options, '--output', str(tmp_path / 'none'), *change]) == 2, message
        error = capsys.readouterr().err
        assert error.startswith('boundary: ')
        assert message in error
        assert error.count('\n') == 1, message

"""The command attack_grid on CartPole: phases of processes of their own, results, going on."""

import json
import threading

import pytest

from vdl_ros import local_training
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.tools import attack_grid

VALUES = 'values-fgsm-0.001'


@pytest.fixture
def checkpoint(tmp_path):
    config = TrainConfig(unroll_length=16, hidden_size=8, total_steps=200)
    local_training.train(EnvConfig(num_envs=4), config, make_algorithm_config(config, {}),
                         tmp_path / 'clean', threading.Event())
    return tmp_path / 'clean' / 'checkpoint.pt'


@pytest.mark.process
def test_phases_are_run_once_and_give_table_and_figures(checkpoint, tmp_path, capsys):
    output = tmp_path / 'attack'
    arguments = ['--env', 'CartPole-v1', '--init', str(checkpoint), '--output', str(output),
                 '--phases', VALUES, '--frozen-steps', '300', '--jobs', '2']
    assert attack_grid.main(arguments) == 0
    figures = {each['phase']: each for each in
               json.loads((output / 'grid.json').read_text())['figures']}
    assert list(figures) == ['baseline', VALUES]
    assert all(each['freeze'] and each['episodes'] > 3 for each in figures.values())
    run = output / 'seed-1' / VALUES
    adversary = json.loads((run / 'summary.json').read_text())['adversary']
    assert adversary['l2'] == pytest.approx(0.001, rel=0.1)
    for name in ('baseline', VALUES, 'values'):
        assert (output / 'figures' / 'seed-1' / f'{name}.pdf').is_file()
    # The table is printed, and nothing runs twice.
    assert (output / 'grid.md').read_text() in capsys.readouterr().out
    assert attack_grid.main([*arguments, '--dry-run']) == 0
    assert capsys.readouterr().out.strip() == ''
    # More steps go on with the runs that are there.
    longer = [*arguments, '--frozen-steps', '400', '--set', 'env_modules:=mine', '--dry-run']
    assert attack_grid.main(longer) == 0
    assert f'--resume {run} --total_steps 400 --env_modules mine' in capsys.readouterr().out
    # Attacks on a policy that learned otherwise would be kept.
    for others in (['--learned-steps', '9'], ['--set', 'discount:=0.5'],
                   ['--init', str(run / 'checkpoint.pt')]):
        assert attack_grid.main([*arguments, *others]) == 2
        name = {'--set': 'settings'}.get(others[0], others[0][2:].replace('-', '_'))
        assert f'{name}: ' in capsys.readouterr().err
    # Defences have phases of their own.
    assert attack_grid.main([
        '--init', str(checkpoint), '--output', str(output), '--defences', '--phases',
        'learned-pgd-0.01', '--set', 'adversarial_steps:=3', '--dry-run']) == 0
    printed = capsys.readouterr().out
    assert '--freeze false --adversarial_mode pgd' in printed
    assert '--eval_every 0 --eval_patience 0' in printed


def test_bad_input_is_one_line_and_status_2(checkpoint, tmp_path, capsys):
    for argument, text in (('--jobs', '0'), ('--frozen-steps', 'many'), ('--scale', '0'),
                           ('--scale', '-1'), ('--scale', 'nan'), ('--scale', 'inf')):
        with pytest.raises(SystemExit, match='^2$'):
            attack_grid.main([f'{argument}={text}'])
        line, = capsys.readouterr().err.splitlines()
        assert line.startswith(
            f'attack_grid: argument {argument}: {text!r} is not allowed: '), line
    for arguments, message in (
            (['--defences', '--phases', 'values-clean'],
             "phases: 'values-clean' is not allowed: some "),
            (['--env', 'Acrobot-v1'], "--env: 'Acrobot-v1' is not allowed: "),
            (['--phases', 'odd'], "phases: 'odd' is not allowed: some of baseline, "),
            (['--set', 'odd:=1'], "--set: 'odd:=1' is not allowed: NAME:=VALUE with a setting")):
        assert attack_grid.main(['--init', str(checkpoint), '--output', str(tmp_path / 'attack'),
                                 *arguments]) == 2
        line, = capsys.readouterr().err.splitlines()
        assert line.startswith(f'attack_grid: {message}'), line
    assert not (tmp_path / 'attack').exists()

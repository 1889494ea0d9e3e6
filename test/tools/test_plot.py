"""The plot command: every image format, and one line for errors."""

import shutil
import subprocess
import sys

import pytest
from plotted import BLUE, ink, words

from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.tools import plot

ORANGE = (0xe8, 0x75, 0x0a)


def write(path, slope=1.0, begin=1, **config):
    """Write a run whose return goes up by ``slope`` in each of sixty rows."""
    folder = RunFolder(path)
    folder.open({'env_id': 'CartPole-v1', 'algorithm': 'impala'} | config, 0)
    for i in range(begin, begin + 60):
        folder.report(
            {'agent_steps': 100 * i, 'wall_s': i / 4, 'mean_return_100': slope * i,
             'mean_length_100': 9.0, 'success_rate_100': 0.5, 'episodes': 3 * i,
             'steps_per_s': 400.0, 'policy_lag_mean': 0.0, 'trajectories_lost': 0},
            {'losses/entropy': 1 / i})


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Be in a folder with runs of impala, a and b, one of ppo, c, and one of Pong, d."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / 'a')
    write(tmp_path / 'b', slope=1.5)
    write(tmp_path / 'c', slope=-1.0, algorithm='ppo')
    write(tmp_path / 'd', env_id='ALE/Pong-v5')
    for name in ('a', 'b'):
        shutil.copytree(name, tmp_path / 'trial' / name)
    return tmp_path


def test_every_format_shows_the_curves(runs, capsys):
    assert plot.main(['a', 'b', '--compare', 'c']) == 0
    assert capsys.readouterr() == ('plot.png\n', '')
    assert ink(runs / 'plot.png', BLUE) > 500
    assert ink(runs / 'plot.png', ORANGE) > 500

    assert plot.main(['trial', '--compare', 'c', '--compare', 'd/progress.csv', '--output',
                      'plot.svg', '--x', 'time', '--y', 'length', '--smooth', '5', '--raw']) == 0
    found = words(runs / 'plot.svg')
    assert {'CartPole-v1, impala, 2 runs', 'CartPole-v1, ppo', 'ALE/Pong-v5, impala', 'time, s',
            'CartPole-v1 and ALE/Pong-v5 (different environments)',
            'length in agent steps, mean of the last 100 episodes'} <= set(found)
    text = ' '.join(found)
    assert 'line: mean of the runs, to the end of the shortest' in text
    assert 'band: mean ± standard deviation' in text
    assert 'moving mean of 5 points' in text

    assert plot.main(['a', '--output', 'plot.PDF', '--y', 'losses/entropy',
                      '--x', 'episodes']) == 0
    assert (runs / 'plot.PDF').read_bytes().startswith(b'%PDF')
    options = ['a', '--compare', 'd', '--label', 'ours', '--label', 'theirs', '--output', 'p.svg']
    assert plot.main(options) == 0
    assert {'ours', 'theirs'} <= set(words(runs / 'p.svg'))


def test_an_error_is_one_line_and_writes_nothing(runs, capsys):
    write(runs / 'late', begin=70)
    # Other faults of runs: test/rl/runs/test_recorded_run.py, test_run_groups.py.
    for options, message in (
            (['nowhere'], 'nowhere: no such folder or file'),
            (['a', 'c'], "c: algorithm 'ppo' is not 'impala' as in a; runs of one group are "
             'averaged; use --compare c for another group'),
            (['a', 'late'], 'a, late: no steps in common: one run ends at 6000, before another '
             'starts at 7000'),
            (['a', '--label', 'x', '--label', 'y'],
             '--label: 2 given; allowed: one for each group of runs, 1'),
            (['a', '--output', 'plot.gif'],
             '--output: plot.gif does not end in .png, .pdf, .svg'),
            (['a', '--output', 'no/plot.png'], '--output: no is not a folder'),
            (['a', '--smooth', '0'],
             "argument --smooth: '0' is not allowed: a number of points from 1, or a fraction "
             'between 0 and 1')):
        try:
            status = plot.main(options)
        except SystemExit as end:
            status = end.code
        assert status == 2, message
        assert capsys.readouterr() == ('', f'plot: {message}\n')
    assert not [path for path in runs.iterdir() if path.is_file()]


def test_the_command_needs_no_ros(runs):
    program = ('import sys\n'
               'for name in ("rclpy", "std_msgs", "torch"): sys.modules[name] = None\n'
               'from vdl_ros.tools import plot\nsys.exit(plot.main(sys.argv[1:]))')
    done = subprocess.run([sys.executable, '-c', program, 'a', 'b'], capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (0, 'plot.png\n'), done.stderr

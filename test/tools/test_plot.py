"""The plot command: every image format, and one line for errors."""

from __future__ import annotations

import re
import subprocess
import zlib

import matplotlib.image
import numpy as np
import pytest

from vdl_ros import local_training
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.tools import plot

BLUE, ORANGE = (0x1f, 0x6f, 0xeb), (0xe8, 0x75, 0x0a)


def write(path, slope=1.0, rows=60, **config):
    """Write a run whose return goes up by ``slope`` in each row."""
    folder = RunFolder(path)
    folder.open({'env_id': 'CartPole-v1', 'algorithm': 'impala'} | config, 0)
    for i in range(1, rows + 1):
        folder.report(
            {'agent_steps': 100 * i, 'wall_s': i / 4, 'mean_return_100': slope * i,
             'mean_length_100': 9.0, 'success_rate_100': 0.5, 'episodes': 3 * i,
             'steps_per_s': 400.0, 'policy_lag_mean': 0.0, 'trajectories_lost': 0},
            {'losses/entropy': 1 / i})
    folder._events.close()


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Be in a folder with runs of impala, a and b, one of ppo, c, and one of Pong, d."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / 'a')
    write(tmp_path / 'b', slope=1.5)
    write(tmp_path / 'c', slope=-1.0, algorithm='ppo')
    write(tmp_path / 'd', env_id='ALE/Pong-v5')
    return tmp_path


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Return the folder of a run that was learned."""
    folder = tmp_path_factory.mktemp('runs') / 'real'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('signal.signal', lambda *_: None)
        assert local_training.main(
            ['--env_id', 'vdl/Counter-v0', '--num_envs', '4', '--hidden_size', '8',
             '--total_steps', '2000', '--run_dir', str(folder)]) == 0
    return folder


def command(*words):
    return subprocess.run(['ros2', 'run', 'vdl_ros', 'plot', *words], capture_output=True,
                          text=True, timeout=120, check=False)


def ink(path, color):
    """Return how many points of the picture have this colour."""
    picture = np.round(255 * matplotlib.image.imread(path)[..., :3]).astype(int)
    return int((picture == color).all(-1).sum())


def words(path):
    """Return the text of an SVG: matplotlib repeats it beside the letters' outlines."""
    return re.findall(r'<!-- (.*) -->', path.read_text())


def test_the_default_output_is_plot_png_in_the_current_folder(runs):
    done = command('a', 'b', '--compare', 'c')
    assert (done.returncode, done.stdout, done.stderr) == (0, 'plot.png\n', '')
    assert ink(runs / 'plot.png', BLUE) > 500
    assert ink(runs / 'plot.png', ORANGE) > 500


def test_an_svg_contains_labels_and_note(runs):
    done = command('a', 'b', '--compare', 'c', 'd', '--output', 'plot.svg')
    assert done.returncode == 2
    done = command('a', 'b', '--compare', 'c', '--compare', 'd/progress.csv', '--output',
                   'plot.svg', '--x', 'time', '--y', 'length', '--smooth', '5', '--raw')
    assert done.returncode == 0, done.stderr
    found = words(runs / 'plot.svg')
    assert {'CartPole-v1, impala, 2 runs', 'CartPole-v1, ppo', 'ALE/Pong-v5, impala', 'time, s',
            'CartPole-v1 and ALE/Pong-v5 (different environments)',
            'length in agent steps, mean of the last 100 episodes'} <= set(found)
    text = ' '.join(found)
    assert 'line: mean of the runs, to the end of the shortest' in text
    assert 'band: mean ± standard deviation' in text
    assert 'moving mean of 5 points' in text


def test_a_pdf_contains_the_curve(runs):
    done = command('a', '--output', 'plot.PDF', '--y', 'losses/entropy', '--x', 'episodes')
    assert done.returncode == 0, done.stderr
    content = (runs / 'plot.PDF').read_bytes()
    assert content.startswith(b'%PDF')
    pages = [zlib.decompress(part) for part in re.findall(
        rb'/FlateDecode.*?stream\r?\n(.*?)\r?\nendstream', content, re.DOTALL)]
    # The line through sixty points, in the blue of the first curve.
    color = ' '.join(f'{value / 255:.10f}'.rstrip('0') for value in BLUE).encode()
    lines = [page for page in pages if color[:6] in page and page.count(b' l\n') >= 50]
    assert len(lines) == 1


def test_labels_and_title_can_be_given(runs, capsys):
    options = ['a', '--compare', 'd', '--label', 'ours', '--label', 'theirs', '--output', 'p.svg']
    assert plot.main([*options, '--title', 'Both']) == 0
    assert {'ours', 'theirs', 'Both (different environments)'} <= set(words(runs / 'p.svg'))
    assert plot.main(['a', '--title', 'One', '--band', 'none', '--output', 'p.svg']) == 0
    assert {'impala', 'One', 'moving mean of 1 points'} & set(words(runs / 'p.svg')) == {
        'impala', 'One'}


@pytest.mark.parametrize('y', ['return', 'length', 'losses/entropy', 'charts/episodic_length'])
def test_a_run_of_local_training_can_be_plotted(trained, tmp_path, y):
    assert plot.main([str(trained), '--y', y, '--output', str(tmp_path / 'plot.svg')]) == 0
    assert {'impala', 'vdl/Counter-v0'} <= set(words(tmp_path / 'plot.svg'))


def damage(path):
    (path / 'a' / 'progress.csv').write_text('agent_steps,wall_s\n1,2\nx,3\n')


def nothing_yet(path):
    (path / 'a' / 'progress.csv').write_text('agent_steps,mean_return_100\n')


def later(path):
    (path / 'b' / 'progress.csv').write_text('agent_steps,mean_return_100\n7000,1\n8000,2\n')


@pytest.mark.parametrize(('options', 'before', 'message'), [
    (['nowhere'], None, 'nowhere: no such folder or file'),
    (['.'], None, '.: not a run: no progress.csv'),
    (['b', 'a'], damage, "a/progress.csv: line 3 is damaged: 'x,3'"),
    (['a'], nothing_yet, 'a/progress.csv: no rows: the run has no progress yet'),
    (['a', 'b'], later, 'a, b: no steps in common: one run ends at 6000, '
     'before another starts at 7000'),
    (['a', 'c'], None, "c: algorithm 'ppo' is not 'impala' as in a; runs of one group are "
     'averaged; use --compare c for another group'),
    (['a', 'a/progress.csv'], None, 'a/progress.csv: given twice in one group'),
    (['a', '--y', 'entropy'], None, 'a: has no entropy; there is return, length, success, '
     'agent_steps, wall_s, mean_return_100, mean_length_100, success_rate_100, episodes, '
     'steps_per_s, policy_lag_mean, trajectories_lost, losses/entropy'),
    (['a', '--label', 'x', '--label', 'y'], None,
     '--label: 2 given; allowed: one for each group of runs, 1'),
    (['a', '--output', 'plot.gif'], None,
     '--output: plot.gif does not end in .png, .pdf, .svg'),
    (['a', '--output', 'plot'], None, '--output: plot does not end in .png, .pdf, .svg'),
    (['a', '--output', 'no/plot.png'], None, '--output: no is not a folder'),
    (['a', '--output', 'is.png'], lambda path: (path / 'is.png').mkdir(),
     '--output: is.png is a folder'),
    ], ids=lambda value: ' '.join(value) if isinstance(value, list) else None)
def test_an_error_is_one_line(runs, capsys, options, before, message):
    if before is not None:
        before(runs)
    assert plot.main(options) == 2
    output = capsys.readouterr()
    assert output.err == f'plot: {message}\n'
    assert output.out == ''
    assert not [path for path in runs.iterdir() if path.is_file()]


@pytest.mark.parametrize(('options', 'message'), [
    ([], 'the following arguments are required: RUN'),
    (['a', '--x', 'age'], "argument --x: invalid choice: 'age' "),
    (['a', '--band', 'wide'], "argument --band: invalid choice: 'wide' "),
    (['a', '--smooth', '0'], "argument --smooth: '0' is not allowed: a number of points from 1"),
    (['a', '--smooth', '2.5'], "argument --smooth: '2.5' is not allowed: a number of points"),
    (['a', '--smooth', 'nan'], "argument --smooth: 'nan' is not allowed: a number of points"),
    (['a', '--smooth', 'much'], "argument --smooth: 'much' is not allowed: a number of points"),
    (['a', '--width', '1000'], "argument --width: '1000' is not allowed: from 4 to 40 inches"),
    (['a', '--width', 'wide'], "argument --width: 'wide' is not allowed: from 4 to 40 inches"),
    (['a', '--compare'], 'argument --compare: expected at least one argument')])
def test_invalid_options_give_one_line(runs, capsys, options, message):
    with pytest.raises(SystemExit) as end:
        plot.main(options)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f'plot: {message}')
    assert error.count('\n') == 1


def test_the_exit_status_is_that_of_main(runs):
    for options, message in ((['nowhere'], 'plot: nowhere: no such folder or file\n'),
                             (['a', '--smooth', '-1'], None)):
        done = command(*options)
        assert done.returncode == 2
        assert done.stderr.count('\n') == 1
        assert message in (None, done.stderr)


def test_it_needs_no_ros(runs):
    code = ('import sys\nfor name in ("rclpy", "std_msgs", "torch"): sys.modules[name] = None\n'
            'from vdl_ros.tools import plot\nsys.exit(plot.main(["a", "b"]))')
    done = subprocess.run(['python3', '-c', code], capture_output=True, text=True, timeout=120,
                          check=False)
    assert (done.returncode, done.stdout) == (0, 'plot.png\n'), done.stderr

"""Plots of learning curves: any input can be drawn, and shows what was given."""

import matplotlib
import numpy as np
import pytest
from plotted import BLUE, ink, picture, words

from vdl_ros.rl.plots.curve_plot import draw_curve, draw_curves
from vdl_ros.rl.plots.curves import Series, make_curve


def row(steps, value, episodes=1):
    return {'agent_steps': steps, 'wall_s': steps / 100, 'mean_return_100': value,
            'episodes': episodes}


def group(label='impala', seeds=3):
    x = np.arange(1.0, 60.0)
    return make_curve(label, [Series(100 * x, x + 5.0 * seed) for seed in range(seeds)], 1)


def draw(path, curves, **options):
    draw_curves(curves, path, **({'x': 'steps', 'y': 'return', 'title': 'CartPole-v1'} | options))
    return path


def test_the_curve_of_a_run_is_drawn(tmp_path):
    path, drawn = tmp_path / 'curve.png', []
    for rows in ([], [row(10, float('nan'), 0)], [row(10, 5.0)],
                 [row(10, float('nan'), 0)] + [row(100 * i, float(i % 7)) for i in range(1, 50)]):
        draw_curve(rows, path, title='vdl/Counter-v0')
        assert picture(path).shape[:2] == (480, 768)
        drawn.append(ink(path, BLUE))
    draw_curve([], tmp_path / 'empty.svg', title='vdl/Counter-v0')
    assert not [each for each in words(tmp_path / 'empty.svg') if each.endswith(' m')]
    assert drawn[:2] == [0, 0], 'no episode yet'
    assert 0 < 3 * drawn[2] < 600 < drawn[3]


def test_labels_are_shown_unchanged(tmp_path):
    for text in ('_hidden', '$E=mc^2$', r'\alpha $1 to $2'):
        path = draw(tmp_path / 'plot.svg', [group('ppo', seeds=1), group(text, seeds=1)],
                    title=f'{text} title', note=f'{text} note', y=f'{text} y')
        assert {text, f'{text} title', f'{text} note', f'{text} y', 'ppo'} <= set(words(path))
        draw_curve([row(100, 1.0), row(200, 2.0)], tmp_path / 'curve.svg', title=text)
        assert f'{text}   2 s' in words(tmp_path / 'curve.svg')
        # The letters of formulas lean.
        assert 'Oblique' not in path.read_text() + (tmp_path / 'curve.svg').read_text(), text
    # Other figures still parse formulas.
    assert matplotlib.rcParams['text.parse_math'] is True


def test_a_band_is_drawn_of_several_runs_and_raw_lines_when_wanted(tmp_path):
    def shapes(**options):
        seeds = options.pop('seeds')
        text = draw(tmp_path / 'plot.svg', [group(seeds=seeds)], **options).read_text()
        return text.count('PolyCollection'), text.count('stroke-opacity: 0.3')

    assert shapes(seeds=1) == (0, 0)
    assert shapes(seeds=3) == (1, 0)
    assert shapes(seeds=3, raw=True) == (1, 3)


def test_a_picture_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match='xyz'):
        draw(tmp_path / 'plot.xyz', [group()])
    assert not list(tmp_path.iterdir())

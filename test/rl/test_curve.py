"""The learning curve is a picture, whatever there is to draw."""

import matplotlib.image
import pytest

from vdl_ros.rl.curve import draw_curve


def row(steps, value, episodes):
    return {'agent_steps': steps, 'wall_s': steps / 100, 'mean_return_100': value,
            'episodes': episodes}


@pytest.mark.parametrize('rows', [
    [], [row(10, float('nan'), 0)], [row(10, 5.0, 1)],
    [row(10, float('nan'), 0)] + [row(100 * i, float(i), i) for i in range(1, 50)]],
    ids=['nothing', 'no episode', 'one', 'many'])
def test_it_is_drawn(tmp_path, rows):
    draw_curve(rows, tmp_path / 'curve.png', title='vdl/Counter-v0')
    picture = matplotlib.image.imread(tmp_path / 'curve.png')
    assert picture.shape[:2] == (480, 768)
    assert picture[..., :3].min() < 0.5 < picture[..., :3].max()


def test_more_rows_draw_more(tmp_path):
    def ink(rows):
        draw_curve(rows, tmp_path / 'curve.png', title='x')
        picture = matplotlib.image.imread(tmp_path / 'curve.png')
        # Blue, as the line is.
        return int(((picture[..., 2] > 0.8) & (picture[..., 0] < 0.3)).sum())

    assert ink([]) == 0
    assert ink([row(100 * i, float(i), 1) for i in range(1, 50)]) > 200

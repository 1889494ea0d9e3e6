"""Learning curves agree with a slow, plain computation."""

import math
import statistics

import numpy as np
import pytest

from vdl_ros.rl.plots.curves import (
    Series,
    interquartile_mean,
    line_and_band,
    make_curve,
    tidy,
)


def series(x, y):
    return Series(np.array(x, np.float64), np.array(y, np.float64))


def naive_moving_mean(y, window):
    """Average what is within half a window, as far as both sides reach."""
    halves = [min(window // 2, i, len(y) - 1 - i) for i in range(len(y))]
    return [statistics.mean(y[i - half:i + half + 1]) for i, half in enumerate(halves)]


def random_runs(seed, count=4):
    rng = np.random.default_rng(seed)
    return [series(np.cumsum(rng.uniform(0.5, 2.0, size)), rng.normal(size=size))
            for size in rng.integers(20, 40, count)]


def test_mean_and_band_are_those_of_smoothed_runs_where_all_of_them_are():
    runs = random_runs(1)
    curve = make_curve('a', runs, 5)
    assert curve.windows == (5, 5, 5, 5)
    begin, end = max(run.x[0] for run in runs), min(run.x[-1] for run in runs)
    assert curve.x.tolist() == sorted({at for run in runs for at in run.x if begin <= at <= end})
    values = [np.interp(curve.x, run.x, naive_moving_mean(run.y, 5)) for run in runs]
    mean, spread = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
    np.testing.assert_allclose(curve.line, mean)
    np.testing.assert_allclose(curve.band, [mean - spread, mean + spread])


def test_bands_of_one_run_and_of_equal_runs():
    run = random_runs(3)[0]
    curve = make_curve('a', [run], 1)
    assert (curve.x.tolist(), curve.line.tolist()) == (run.x.tolist(), run.y.tolist())
    assert curve.band is None
    curve = make_curve('a', [run, run, run], 3)
    np.testing.assert_allclose(curve.band, [curve.line, curve.line], atol=1e-12)


def test_invalid_points_are_dropped_and_the_last_of_equal_x_is_kept():
    found = tidy(np.array([0.0, 10, 10, 20, 30]), np.array([math.nan, 1, 2, math.inf, 3]))
    assert found.x.tolist() == [10, 30]
    assert found.y.tolist() == [2, 3]


def test_an_error_explains_an_invalid_series():
    for x, y, message in (
            ([0, 300, 200], [1, 1, 1], 'x decreases from 300 to 200'),
            ([0, 300, 200], [1, 1, math.nan], 'x decreases from 300 to 200'),
            ([0, 300], [math.nan, math.nan], 'there is no value yet')):
        with pytest.raises(ValueError, match=f'^{message}$'):
            tidy(np.array(x, np.float64), np.array(y, np.float64))


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end():
    y = np.random.default_rng(1).normal(size=(9, 4))
    for column, found in zip(y.T, interquartile_mean(y), strict=True):
        assert found == pytest.approx(statistics.mean(sorted(column)[2:7]))
    assert interquartile_mean(y[:3]) == pytest.approx(y[:3].mean(0))
    assert interquartile_mean(y[:4]) == pytest.approx(np.sort(y[:4], 0)[1:3].mean(0))


def test_the_bootstrap_band_holds_the_line_of_runs_drawn_again():
    # Of two runs, a quarter of the draws has one of them twice.
    y = np.array([[1.0, -2.0], [3.0, 6.0]])
    line, band = line_and_band(y, 'iqm')
    assert line.tolist() == [2.0, 2.0]
    assert band.tolist() == [[1.0, -2.0], [3.0, 6.0]]
    y = np.random.default_rng(2).normal(size=(400, 1))
    line, band = line_and_band(y, 'iqm')
    # Of normal samples its variance is 1.195 times that of the mean.
    half = 1.96 * np.sqrt(1.195) * y.std() / 20
    np.testing.assert_allclose(band[:, 0] - line[0], [-half, half], rtol=0.1)

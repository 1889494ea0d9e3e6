"""Learning curves agree with a slow, plain computation."""

import math
import statistics

import numpy as np
import pytest

from vdl_ros.rl.plots.curves import (
    Series,
    align,
    interquartile_mean,
    line_and_band,
    make_curve,
    moving_mean,
    tidy,
)


def series(x, y):
    return Series(np.array(x, np.float64), np.array(y, np.float64))


def naive_moving_mean(y, window):
    """Average what is within half a window, as far as both sides reach."""
    means = []
    for i in range(len(y)):
        half = window // 2
        while i - half < 0 or i + half > len(y) - 1:
            half -= 1
        total = 0.0
        for j in range(i - half, i + half + 1):
            total += y[j]
        means.append(total / (2 * half + 1))
    return means


def naive_value(run, at):
    """Return the value at ``at`` on the straight line between its neighbours."""
    for i in range(len(run.x) - 1):
        if run.x[i] <= at <= run.x[i + 1]:
            share = (at - run.x[i]) / (run.x[i + 1] - run.x[i])
            return (1 - share) * run.y[i] + share * run.y[i + 1]
    raise AssertionError(f'{at} is not within {run.x}')


def random_runs(seed, count=4):
    rng = np.random.default_rng(seed)
    return [series(np.cumsum(rng.uniform(0.5, 2.0, size)), rng.normal(size=size))
            for size in rng.integers(20, 40, count)]


def test_the_moving_mean_equals_a_plain_computation():
    for window in (1, 3, 7, 19, 39):
        y = np.random.default_rng(window).normal(size=39)
        np.testing.assert_allclose(
            moving_mean(y, window), naive_moving_mean(y, window), atol=1e-12)


def test_runs_of_other_x_and_length_are_averaged_where_all_of_them_are():
    x, y = align([series([0, 10, 20, 30], [0, 10, 20, 30]), series([5, 25], [1, 1])])
    assert x.tolist() == [5, 10, 20, 25]
    assert y.tolist() == [[5, 10, 20, 25], [1, 1, 1, 1]]


def test_mean_and_band_are_those_of_smoothed_runs_at_each_x():
    runs = random_runs(1)
    curve = make_curve('a', runs, 5, 'std')
    assert curve.windows == (5, 5, 5, 5)
    edges = make_curve('a', runs, 5, 'minmax').band
    runs = [series(run.x, naive_moving_mean(run.y, 5)) for run in runs]
    begin, end = max(run.x[0] for run in runs), min(run.x[-1] for run in runs)
    assert curve.x.tolist() == sorted({at for run in runs for at in run.x if begin <= at <= end})
    for i in range(len(curve.x)):
        values = [naive_value(run, curve.x[i]) for run in runs]
        mean, spread = statistics.mean(values), statistics.stdev(values)
        assert curve.line[i] == pytest.approx(mean, abs=1e-9)
        assert curve.band[:, i] == pytest.approx([mean - spread, mean + spread], abs=1e-9)
        assert edges[:, i] == pytest.approx([min(values), max(values)], abs=1e-9)


def test_bands_of_one_run_of_equal_runs_and_none():
    run = random_runs(3)[0]
    for band in ('std', 'minmax', 'none'):
        curve = make_curve('a', [run], 1, band)
        assert curve.x.tolist() == run.x.tolist(), band
        assert curve.line.tolist() == run.y.tolist(), band
        assert curve.band is None, band
    mean, band = line_and_band(np.array([[1.0, 2.0], [3.0, 6.0]]), 'mean', 'none')
    assert mean.tolist() == [2, 4]
    assert band is None
    curve = make_curve('a', [run, run, run], 3, 'std')
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
    line, band = line_and_band(y, 'iqm', 'bootstrap')
    assert line.tolist() == [2.0, 2.0]
    assert band.tolist() == [[1.0, -2.0], [3.0, 6.0]]
    y = np.random.default_rng(2).normal(size=(400, 1))
    line, band = line_and_band(y, 'mean', 'bootstrap')
    half = 1.96 * y.std() / 20
    np.testing.assert_allclose(band[:, 0] - line[0], [-half, half], rtol=0.1)

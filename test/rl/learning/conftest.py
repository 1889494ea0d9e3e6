"""What the tests of training loops share."""

import pytest


@pytest.fixture(autouse=True)
def no_curve(monkeypatch):
    """Write no picture: it takes longer than the rest; test_curve_plot.py looks at it."""
    monkeypatch.setattr('vdl_ros.rl.plots.curve_plot.draw_curve',
                        lambda rows, path, *, title: path.write_text(title))

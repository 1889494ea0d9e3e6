"""Rates of counts over windows of time."""

from vdl_ros.rl.learning.rates import RateWindow


def test_rates_are_of_what_is_new():
    counts, now = {'bytes': 100.0, 'updates': 1.0}, [10.0]
    window = RateWindow(lambda: counts, lambda: now[0])
    counts.update(bytes=300.0, updates=2.0)
    now[0] = 14.0
    assert window.take() == ({'bytes': 200.0, 'updates': 1.0}, {'bytes': 50.0, 'updates': 0.25})
    now[0] = 15.0
    assert window.take()[1] == {'bytes': 0.0, 'updates': 0.0}
    counts['bytes'] = 900.0
    window.restart()
    now[0] = 16.0
    assert window.take()[1]['bytes'] == 0.0

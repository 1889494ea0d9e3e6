"""The estimate of the clock offset, from exchanges over simulated links."""

import random

import pytest

from vdl_ros.ros.checks.peer.clock_offset import Exchange, estimate_offset


def exchanges(offset, there, back, count=200, queue=0, seed=0):
    """Return exchanges with a peer; the ways take at least ``there`` and ``back``, all in ns."""
    chance, now, found = random.Random(seed), 10 ** 18, []
    for _ in range(count):
        arrival = now + there + int(queue * chance.random() ** 4)
        departure = arrival + 20_000
        end = departure + back + int(queue * chance.random() ** 4)
        found.append(Exchange(now, arrival + offset, departure + offset, end))
        now = end + 1_000_000
    return found


@pytest.mark.parametrize('offset', [-3_600_000_000_000, -1_000, 0, 50_000_000])
def test_the_offset_is_exact_if_both_ways_take_as_long(offset):
    found = estimate_offset(exchanges(offset, 100_000, 100_000))
    assert found.seconds == pytest.approx(offset / 1e9, abs=1e-9)
    assert found.uncertainty == pytest.approx(100e-6)


@pytest.mark.parametrize(('there', 'back'), [(100_000, 100_000), (10_000, 2_000_000)])
@pytest.mark.parametrize('seed', range(5))
def test_the_error_is_within_the_uncertainty_despite_queues(there, back, seed):
    found = estimate_offset(exchanges(12_000_000, there, back, queue=20_000_000, seed=seed))
    assert abs(found.seconds - 0.012) <= found.uncertainty
    # The queues of 10 ms on average are filtered out.
    assert found.uncertainty < (there + back) / 2e9 + 1e-3


def test_without_exchanges_there_is_no_offset():
    with pytest.raises(ValueError, match='no exchanges'):
        estimate_offset([])

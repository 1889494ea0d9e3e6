"""bench_transport: ratios and tables."""

import pytest

from benchmarks import bench_transport as bench
from benchmarks.transport_peer import Cell


def sample(number, way, task, size, **found):
    cell = Cell(way, task, size, packets=10, window=4, limit=1.0, where='')
    return bench.sample('one host', number, cell, found)


def test_ratios_are_taken_within_a_round_and_tables_show_losses_and_the_seed():
    size = 800_000
    # Each round's ratio is 0.5, 0.5, 0.1; that of the medians would be 0.4.
    samples = [sample(number, way, 'throughput', size, received=10, seconds=10 * size / 1e6 / rate)
               for number, pair in enumerate([(100, 50), (200, 100), (400, 40)])
               for way, rate in zip(('tcp', 'dds'), pair, strict=True)]
    samples.append(sample(0, 'dds', 'round_trip', 28_000, received=9, trips_ms=[0.2] * 9))
    samples.append(sample(0, 'dds', 'round_trip', 100, received=0, trips_ms=[]))
    tcp, dds, *_ = rows = bench.rows(samples)
    assert (tcp['way'], tcp['of_tcp'], tcp['rounds']) == ('tcp', 1.0, 3)
    assert dds['MBps'] == pytest.approx(50.0)
    assert dds['of_tcp'] == pytest.approx(0.5)
    assert (dds['asked'], dds['received']) == (30, 30)
    text = bench.markdown(rows)
    assert '| 800,000 | tcp | 200 | 250 | 0 | 1.00 | 3,255 |' in text
    assert '| 28,000 | dds | 0.200 | 0.200 | 1 |  |' in text
    assert '| 100 | dds |  |  | 10 |  |' in text

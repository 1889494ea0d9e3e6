"""bench_transport: figures, ratios, and tables."""

import pytest

from benchmarks import bench_transport as bench
from benchmarks.transport.worker import Cell


def cell(way='tcp', task='throughput', clients=2, size=1_000_000):
    return Cell(way, task, clients, size, packets=10, window=4, limit=1.0, token=5)


def found(received=(10, 10), seconds=(0.1, 0.2), sent=(10, 10), trips=(), cpu=0.5):
    return {'received': list(received), 'seconds': list(seconds), 'sent': list(sent),
            'trips_ms': list(trips), 'cpu_s': cpu}


def sampled(rates, size=800_000):
    """Return samples of TCP and DDS from (TCP, DDS) rates in MB/s, one pair for each round."""
    return [bench.sample('one host', number, cell(way, clients=1, size=size),
                         found((10,), (10 * size / 1e6 / rate,), (10,)))
            for number, pair in enumerate(rates)
            for way, rate in zip(('tcp', 'dds'), pair, strict=True)]


def test_figures_count_what_was_received():
    line = bench.sample(
        'one host', 0, cell(), found((10, 5), (0.1, 0.2), (10, 9), cpu=0.3))
    assert (line['asked'], line['sent'], line['received'], line['lost']) == (20, 19, 15, 5)
    assert [line[name] for name in (
        'MBps', 'MBps_each', 'MBps_least', 'packets_per_s', 'cpu_ms_per_MB')] == pytest.approx(
            [75.0, (100.0 + 25.0) / 2, 25.0, 75.0, 20.0])
    line = bench.sample('one host', 0, cell(), found((0, 0), (0.0, 0.0), (4, 4)))
    assert (line['MBps'], line['cpu_ms_per_MB'], line['lost']) == (0.0, None, 20)
    line = bench.sample(
        'one host', 0, cell(task='round_trip', clients=1), found((0,), (0.0,), (1,)))
    assert (line['p50_ms'], line['lost']) == (None, 10)


def test_ratios_are_taken_within_a_round_and_tables_show_losses_and_the_seed():
    # Each round's ratio is 0.5, 0.5, 0.1; that of the medians would be 0.4.
    samples = sampled([(100, 50), (200, 100), (400, 40)])
    samples.append(bench.sample('one host', 0, cell('dds', 'round_trip', 1, 28_000),
                                found((9,), trips=[0.2] * 9)))
    tcp, dds, _ = rows = bench.rows(samples)
    assert (tcp['way'], tcp['of_tcp'], tcp['rounds']) == ('tcp', 1.0, 3)
    assert dds['MBps'] == pytest.approx(50.0)
    assert dds['of_tcp'] == pytest.approx(0.5)
    assert (dds['asked'], dds['received']) == (30, 30)
    text = bench.markdown(rows)
    assert '| 800,000 | 1 | tcp | 200 | 200 | 250 | 62.50 | 0 | 1.00 | 3,255 |' in text
    assert '| 28,000 | dds | 0.200 | 0.200 | 1 |  |' in text

"""bench_transport: cells, figures, and tables."""

import pytest

from benchmarks import bench_transport as bench
from benchmarks.transport.cell import Cell


def cell(way='tcp', task='throughput', clients=2, size=1_000_000, packets=10, token=5):
    return Cell(way, task, clients, size, packets, window=4, limit=1.0, token=token)


def found(received=(10, 10), seconds=(0.1, 0.2), sent=(10, 10), trips=(), cpu=0.5):
    return {'received': list(received), 'seconds': list(seconds), 'sent': list(sent),
            'trips_ms': list(trips), 'cpu_s': cpu}


def sampled(rates, size=800_000):
    """Return samples of TCP and DDS from (TCP, DDS) rates in MB/s, one pair for each round."""
    samples = []
    for number, pair in enumerate(rates):
        for way, rate in zip(('tcp', 'dds-events'), pair, strict=True):
            time = 10 * size / 1e6 / rate if rate else 0.0
            samples.append(bench.sample(
                'one host', number, cell(way, clients=1, size=size),
                found((10 if rate else 0,), (time,), (10,))))
    return samples


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
    # Percentiles are measured values.
    values = list(range(100, 0, -1))
    assert [bench.percentile(values, each) for each in (0.5, 0.99)] == [51, 100]


def test_ratios_are_taken_within_a_round_and_the_aim_is_half_of_tcp():
    # Each round's ratio is 0.5, 0.5, 0.1; that of the medians would be 0.4.
    tcp, dds = bench.rows(sampled([(100, 50), (200, 100), (400, 40)]))
    assert (tcp['way'], tcp['of_tcp'], tcp['rounds']) == ('tcp', 1.0, 3)
    assert dds['MBps'] == pytest.approx(50.0)
    assert dds['of_tcp'] == pytest.approx(0.5)
    assert (dds['asked'], dds['received']) == (30, 30)
    for speed, reached in ((50, [True]), (49, [False]), (0, [])):
        rows = bench.rows(sampled([(100, speed)]))
        assert [each['reached'] for each in bench.aims(rows)] == reached, speed


def test_tables_show_losses_the_seed_and_missed_aims():
    samples = sampled([(1000, 400)])
    samples.append(bench.sample('one host', 0, cell('dds-multi', clients=1, size=800_000),
                                found((4,), (1.0,), (10,))))
    trip = cell('dds-events', 'round_trip', 1, 28_000)
    samples.append(bench.sample('one host', 0, trip, found((10,), trips=[0.2] * 10)))
    rows = bench.rows(samples)
    text = bench.markdown(rows, bench.aims(rows))
    assert '| 800 KB | 1 | tcp | 1,000 | 1,000 | 1,250 | 62.50 | 0 | 1.00 | - | 3,255 |' in text
    assert '| 800 KB | 1 | dds-multi | 3 | 3 | 4 | 156.25 | 6 of 10 | 0.00 | - | - |' in text
    assert '| 28 KB | dds-events | 0.200 | 0.200 | 0 | - | - |' in text
    assert 'missed: one host: DDS / TCP' in text
    assert 'reached: one host: round trip of 28 KB' in text

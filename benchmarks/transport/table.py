"""Figures of bench_transport: medians over rounds, ratios to TCP, aims, tables.

A sample is one cell of one round; a row has the medians of a cell's samples. Ratios are medians
of the ratios within each round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.transport.cell import Cell

__all__ = ['aims', 'markdown', 'percentile', 'rows', 'sample']

MB = 1e6
LARGE = 800_000  # bytes; from this size on DDS shall reach half of TCP
LEAST_RATIO = 0.5
ASKED = 28_000  # bytes of the round trip that has an aim
MOST_MS = 0.3
MAIN = 'dds-events'

# The seed's speed test: raw TCP, one client, MB/s, by its own clock around send() alone; on one
# host, and between two of a cluster (1 Gb/s).
SEED = {('one host', 8_000): 378.7, ('one host', 800_000): 3255.0,
        ('two namespaces', 8_000): 224.4, ('two namespaces', 800_000): 253.7}
SEED_NOTE = (
    'seed: raw TCP with one client, timed around `send()` alone, on one host, and on a cluster '
    'of 1 Gb/s beside the two namespaces. There 2 clients had 65 to 70 MB/s each, 3 clients 40 '
    'to 43.')


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of all lie (nearest rank); None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def sample(hosts: str, number: int, cell: Cell, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of one cell of one round.

    Rates count what was received, from the start to each client's last packet. ``MBps`` is of all
    clients together, ``MBps_each`` the mean of theirs, ``MBps_least`` that of the slowest.
    """
    received, seconds = found['received'], found['seconds']
    asked, got = cell.packets * cell.clients, sum(received)
    line: dict[str, Any] = {
        'hosts': hosts, 'round': number, 'task': cell.task, 'way': cell.way, 'size': cell.size,
        'clients': cell.clients, 'asked': asked, 'sent': sum(found['sent']), 'received': got,
        'lost': asked - got}
    if cell.task == 'round_trip':
        trips = found['trips_ms']
        line['lost'] = asked - len(trips)
        return line | {'p50_ms': percentile(trips, 0.5), 'p99_ms': percentile(trips, 0.99)}
    each = [count * cell.size / MB / time if time else 0.0
            for count, time in zip(received, seconds, strict=True)]
    whole, bytes_in = max(seconds), got * cell.size / MB
    return line | {
        'MBps': bytes_in / whole if whole else 0.0, 'MBps_each': statistics.fmean(each),
        'MBps_least': min(each), 'packets_per_s': got / whole if whole else 0.0,
        'cpu_ms_per_MB': found['cpu_s'] * 1e3 / bytes_in if got else None}


def rows(samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the medians of samples that differ in their round only, in order of appearance."""
    together: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for each in samples:
        key = tuple(each[name] for name in ('hosts', 'task', 'size', 'clients', 'way'))
        together.setdefault(key, []).append(each)
    found = []
    for key, group in together.items():
        row: dict[str, Any] = dict(zip(
            ('hosts', 'task', 'size', 'clients', 'way'), key, strict=True))
        row['rounds'] = len(group)
        for name in ('asked', 'sent', 'received', 'lost'):
            row[name] = sum(each[name] for each in group)
        for name in group[0]:
            if name.endswith(('_ms', '_MB', '_s')) or name.startswith('MBps'):
                row[name] = report.median(each[name] for each in group)
        for name, way in (('of_tcp', 'tcp'), ('of_tcp_kept', 'tcp-kept')):
            row[name] = _ratio(group, together.get((*key[:4], way), ()))
        found.append(row)
    return found


def _ratio(
    group: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]],
) -> float | None:
    """Return the median of the rounds' ratios; None if no round has both."""
    reference = {each['round']: each for each in others}
    pairs = [(each, reference[each['round']]) for each in group if each['round'] in reference]
    rates = [(each.get('MBps', each.get('p50_ms')), other.get('MBps', other.get('p50_ms')))
             for each, other in pairs]
    return report.median(rate / other for rate, other in rates if rate and other)



def aims(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each aim with what was measured and whether it was reached, by hosts."""
    found = list(found)
    results = []
    for hosts in dict.fromkeys(row['hosts'] for row in found):
        main = [row for row in found if row['hosts'] == hosts and row['way'] == MAIN]
        ratios = [row['of_tcp'] for row in main if row['task'] == 'throughput'
                  and row['size'] >= LARGE and row['of_tcp'] is not None]
        trips = [row['p50_ms'] for row in main if row['task'] == 'round_trip'
                 and row['size'] == ASKED and row['p50_ms'] is not None]
        if ratios:
            results.append({
                'hosts': hosts, 'aim': f'DDS / TCP, packets of 800 KB and over, least: at least '
                f'{LEAST_RATIO:g}', 'measured': min(ratios), 'unit': '',
                'reached': min(ratios) >= LEAST_RATIO})
        if trips:
            results.append({
                'hosts': hosts, 'aim': f'round trip of 28 KB over DDS, p50: under {MOST_MS:g} ms',
                'measured': trips[0], 'unit': ' ms', 'reached': trips[0] < MOST_MS})
    return results


def size_text(size: int) -> str:
    """Return bytes as people write them."""
    if size >= 1_000_000:
        return f'{size / 1e6:g} MB'
    return f'{size / 1e3:g} KB' if size >= 1000 else f'{size} B'


def markdown(found: Sequence[Mapping[str, Any]], results: Iterable[Mapping[str, Any]]) -> str:
    """Return the tables, one of throughput and one of round trips for each pair of hosts."""
    lines: list[str] = []
    for hosts in dict.fromkeys(row['hosts'] for row in found):
        mine = [row for row in found if row['hosts'] == hosts]
        flow = [row for row in mine if row['task'] == 'throughput']
        trips = [row for row in mine if row['task'] == 'round_trip']
        if flow:
            lines += [f'### Throughput, {hosts}', '', *report.table(
                ('packet', 'clients', 'way', 'MB/s each', 'MB/s in all', 'packets/s',
                 'CPU ms/MB', 'lost', 'of TCP', 'of TCP, kept', 'seed, MB/s'),
                map(_throughput, flow)), '']
        if trips:
            lines += [f'### Round trip, {hosts}', '', *report.table(
                ('packet', 'way', 'p50 ms', 'p99 ms', 'lost', 'of TCP', 'of TCP, kept'),
                map(_round_trip, trips)), '']
    lines += [SEED_NOTE, '']
    lines += [f'{"reached" if each["reached"] else "missed"}: {each["hosts"]}: {each["aim"]}; '
              f'measured {each["measured"]:.2f}{each["unit"]}' for each in results]
    return '\n'.join(lines)


def _throughput(row: Mapping[str, Any]) -> tuple[str, ...]:
    seed = SEED.get((row['hosts'], row['size'])) if (
        row['way'], row['clients']) == ('tcp', 1) else None
    return (size_text(row['size']), str(row['clients']), row['way'], _text(row['MBps_each'], 0),
            _text(row['MBps'], 0), _text(row['packets_per_s'], 0), _text(row['cpu_ms_per_MB'], 2),
            _lost(row), _text(row['of_tcp'], 2), _text(row['of_tcp_kept'], 2), _text(seed, 0))


def _round_trip(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (size_text(row['size']), row['way'], _text(row['p50_ms'], 3), _text(row['p99_ms'], 3),
            _lost(row), _text(row['of_tcp'], 1), _text(row['of_tcp_kept'], 1))


def _lost(row: Mapping[str, Any]) -> str:
    return '0' if not row['lost'] else f'{row["lost"]} of {row["asked"]}'


def _text(value: float | None, digits: int) -> str:
    return '-' if value is None else f'{value:,.{digits}f}'

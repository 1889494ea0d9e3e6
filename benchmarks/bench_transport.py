"""DDS as this package uses it, beside raw TCP: throughput, processor time, losses, round trips.

One server receives from 1, 2 and 3 clients, each a process; with --namespaces once more between
two network namespaces. The ways take turns, round after round: ``tcp`` (a socket for each client,
length-prefixed packets, no delay) and ``dds`` (trajectories, encoded and decoded for each packet).

A sample is one cell of one round; a row has the medians of a cell's samples. Ratios are medians
of the ratios within each round.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.transport.peers import ONE_HOST, Hosts, Team, two_hosts
from benchmarks.transport.worker import Cell

# Under way in each client over DDS: as many bytes as TCP's window grows to, at most 64 packets,
# and from all clients together at most the depth of the topic.
WINDOW_BYTES, MAX_UNDER_WAY, DEPTH = 4_000_000, 64, 256
MAX_SIZE, MAX_CLIENTS = 64_000_000, 16
WAYS = ('tcp', 'dds')

MB = 1e6
# The seed's speed test by hosts, bytes, way and clients, MB/s.
SEED = {('one host', 8_000, 'tcp', 1): 378.7, ('one host', 800_000, 'tcp', 1): 3255.0,
        ('two namespaces', 8_000, 'tcp', 1): 224.4, ('two namespaces', 800_000, 'tcp', 1): 253.7}
SEED_NOTE = (
    'seed: raw TCP with one client, timed around `send()` alone, on one host, and on a cluster '
    'of 1 Gb/s beside the two namespaces. There 2 clients had 65 to 70 MB/s each, 3 clients 40 '
    'to 43.')


def cells(options: argparse.Namespace, number: int) -> Iterator[Cell]:
    """Yield the cells of a round; each round begins with another way."""
    # 160 MB a client are a tenth of a second over TCP, and half a second over DDS.
    volume, most = (16_000_000, 200) if options.quick else (160_000_000, 2000)
    token = number * 4096
    for task, sizes in (('throughput', options.sizes), ('round_trip', options.round_trips)):
        for size in sizes:
            for clients in options.clients if task == 'throughput' else (1,):
                window = min(max(WINDOW_BYTES // size, 2), MAX_UNDER_WAY, DEPTH // clients)
                count = options.trips or (50 if options.quick else 500)
                if task == 'throughput':
                    count = options.packets or min(max(volume // size, 4), most)
                for way in report.turned(options.ways, number):
                    token += 1
                    yield Cell(way, task, clients, size, count, window, options.limit, token)


def measure(hosts: Hosts, options: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    """Return the samples of all rounds, and the transport in force."""
    samples = []
    with contextlib.ExitStack() as stack:
        teams = {way: stack.enter_context(contextlib.closing(
                     Team(way, hosts, max(options.clients)))) for way in options.ways}
        for way in options.ways:  # warm-up
            teams[way].measure(Cell(
                way, 'throughput', max(options.clients), max(options.sizes), 4, 2, options.limit,
                1 << 40))
        for number in range(options.rounds):
            for cell in cells(options, number):
                line = sample(hosts.name, number, cell, teams[cell.way].measure(cell))
                samples.append(line)
                found = (f'{line["MBps"]:.0f} MB/s' if cell.task == 'throughput'
                         else f'{line["p50_ms"] or float("nan"):.3f} ms there and back')
                report.log(f'{hosts.name}, round {number + 1} of {options.rounds}: {cell.size:,} '
                           f'bytes, clients: {cell.clients}, {cell.way}: {found}, '
                           f'{line["lost"]} of {line["asked"]} lost')
        return samples, teams['dds' if 'dds' in teams else 'tcp'].transport


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = report.Parser('bench_transport', __doc__, quick='two rounds, a tenth of the packets')
    parser.add_argument('--namespaces', action='store_true',
                        help='once more between two network namespaces (root)')
    parser.add_argument('--ways', default=','.join(WAYS), metavar='W,W',
                        help=f'of {", ".join(WAYS)}')
    for name, text, sizes, high in (
            ('clients', '', '1,2,3', MAX_CLIENTS),
            ('sizes', 'bytes of data in a packet', '8000,800000,4000000', MAX_SIZE),
            ('round-trips', 'bytes of data in a packet that comes back', '100,28000,230000',
             MAX_SIZE)):
        parser.numbers(f'--{name}', text, (sizes, sizes), (1, high))
    parser.number('--packets', int, 'packets of each client in a round (160 MB of them, at most '
                  '2000)', (None, None), (1, 100_000))
    parser.number('--trips', int, 'round trips in a round (500; quick: 50)', (None, None),
                  (1, 100_000))
    parser.number('--rounds', int, 'rounds', (5, 2), (1, 1000))
    parser.number('--limit', float, 'seconds after which a packet counts as lost', (10.0, 2.0),
                  (1, 600))
    options = parser.complete(words)
    options.ways = list(dict.fromkeys(options.ways.split(',')))
    for word in options.ways:
        if word not in WAYS:
            raise ValueError(f'--ways: {word!r} is not one of {", ".join(WAYS)}')
    return options


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
        middle, late = map(float, np.percentile(trips, (50, 99))) if trips else (None, None)
        return line | {'lost': asked - len(trips), 'p50_ms': middle, 'p99_ms': late}
    each = [count * cell.size / MB / time if time else 0.0
            for count, time in zip(received, seconds, strict=True)]
    whole, bytes_in = max(seconds), got * cell.size / MB
    return line | {
        'MBps': bytes_in / whole if whole else 0.0, 'MBps_each': statistics.fmean(each),
        'MBps_least': min(each), 'packets_per_s': got / whole if whole else 0.0,
        'cpu_ms_per_MB': found['cpu_s'] * 1e3 / bytes_in if got else None}


def rows(samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the medians of samples that differ in their round only, in order of appearance."""
    keys = ('hosts', 'task', 'size', 'clients', 'way')
    together: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for each in samples:
        together.setdefault(tuple(each[name] for name in keys), []).append(each)
    found = []
    for key, group in together.items():
        row = dict(zip(keys, key, strict=True)) | {'rounds': len(group)} | {
            name: sum(each[name] for each in group)
            for name in ('asked', 'sent', 'received', 'lost')} | {
            name: report.median(each[name] for each in group) for name in group[0]
            if name.endswith(('_ms', '_MB', '_s')) or name.startswith('MBps')}
        row['of_tcp'] = _ratio(group, together.get((*key[:4], 'tcp'), ()))
        found.append(row)
    return found


def _ratio(
    group: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]],
) -> float | None:
    """Return the median of the rounds' ratios; None if no round has both."""
    def rate(each: Mapping[str, Any]) -> float | None:
        return each.get('MBps', each.get('p50_ms'))

    reference = {each['round']: rate(each) for each in others}
    pairs = [(rate(each), reference.get(each['round'])) for each in group]
    return report.median(mine / other for mine, other in pairs if mine and other)


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_transport', parse, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    transports, missing = {}, ''
    samples, transports[ONE_HOST.name] = measure(ONE_HOST, options)
    if options.namespaces:
        try:
            with two_hosts() as hosts:
                more, transports[hosts.name] = measure(hosts, options)
                samples += more
        except OSError as error:
            missing = f'no network namespaces here: {error}'
            report.log(f'bench_transport: {missing}')
    report.deliver('transport', {
        'transport': transports,
        'namespaces': missing or ('measured' if options.namespaces else 'not asked for'),
        'rounds': options.rounds, 'quick': options.quick, 'rows': rows(samples)}, options,
        lambda found: markdown(found['rows']))


def markdown(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables, one of throughput and one of round trips for each pair of hosts."""
    lines: list[str] = []
    tables = {
        'throughput': {
            'bytes': '{size:,}', 'clients': '{clients}', 'way': '{way}',
            'MB/s each': '{MBps_each:,.0f}', 'MB/s in all': '{MBps:,.0f}',
            'packets/s': '{packets_per_s:,.0f}', 'CPU ms/MB': '{cpu_ms_per_MB:.2f}',
            'lost': '{lost}', 'of TCP': '{of_tcp:.2f}', 'seed, MB/s': '{seed:,.0f}'},
        'round_trip': {
            'bytes': '{size:,}', 'way': '{way}', 'p50 ms': '{p50_ms:.3f}',
            'p99 ms': '{p99_ms:.3f}', 'lost': '{lost}', 'of TCP': '{of_tcp:.1f}'}}
    for hosts, (task, columns) in itertools.product(
            dict.fromkeys(row['hosts'] for row in found), tables.items()):
        mine = [{**row, 'seed': SEED.get((hosts, row['size'], row['way'], row['clients']))}
                for row in found if (row['hosts'], row['task']) == (hosts, task)]
        if mine:
            lines += [f'### {task}, {hosts}', '', *report.columns(columns, mine), '']
    return '\n'.join([*lines, SEED_NOTE])

"""DDS as this package uses it, beside raw TCP: throughput, losses, round trips.

A client sends to a server, each a process; with --namespaces once more between two network
namespaces. The ways take turns, round after round: ``tcp`` (a socket, length-prefixed packets, no
delay) and ``dds`` (trajectories, encoded and decoded for each packet).

A row has the medians of all rounds; ratios are medians of the ratios within each round.
"""

import argparse
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.graph import launched, module_command, printed, run_module, wait
from benchmarks.hosts import ONE_HOST, Hosts, two_hosts
from benchmarks.transport_peer import ROUND_TRIP, Cell

# Under way over DDS: as many bytes as TCP's window grows to.
WINDOW_BYTES, MAX_UNDER_WAY = 4_000_000, 64
MAX_SIZE = 64_000_000
WAYS = ('tcp', 'dds')
THROUGHPUT = 'throughput'
# Time of a process to start, and of a cell beyond what may be lost, s.
_START_S, _CELL_S = 90.0, 600.0
_PEER = 'benchmarks.transport_peer'

MB = 1e6
# The seed's speed test by hosts, bytes and way, MB/s.
SEED = {('one host', 8_000, 'tcp'): 378.7, ('one host', 800_000, 'tcp'): 3255.0,
        ('two namespaces', 8_000, 'tcp'): 224.4, ('two namespaces', 800_000, 'tcp'): 253.7}
SEED_NOTE = (
    'seed: raw TCP with one client, timed around `send()` alone, on one host, and on a cluster '
    'of 1 Gb/s beside the two namespaces.')


def cells(options: argparse.Namespace, hosts: Hosts, number: int) -> Iterator[Cell]:
    """Yield the cells of a round; each round begins with another way."""
    # 160 MB are a tenth of a second over TCP, and half a second over DDS.
    volume, most = (16_000_000, 200) if options.quick else (160_000_000, 2000)
    for task, sizes in ((THROUGHPUT, options.sizes), (ROUND_TRIP, options.round_trips)):
        for size in sizes:
            window = min(max(WINDOW_BYTES // size, 2), MAX_UNDER_WAY)
            count = options.trips or (50 if options.quick else 500)
            if task == THROUGHPUT:
                count = options.packets or min(max(volume // size, 4), most)
            for way in report.turned(WAYS, number):
                where = hosts.address if way == 'tcp' else f'/bench_transport_{os.getpid()}'
                yield Cell(way, task, size, count, window, options.limit, where)


def run(hosts: Hosts, cell: Cell) -> dict[str, Any]:
    """Return what the client of a cell measured, with the ``transport`` of its server."""
    def words(cell: Cell) -> str:
        return json.dumps(dataclasses.asdict(cell))

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / 'log'
        try:
            with launched(*hosts.server, *module_command(_PEER, 'server', words(cell)), log=log,
                          may_end=True) as server:
                wait(server, lambda: printed(log), _START_S, 'its start')
                hello = printed(log)[0]
                cell = dataclasses.replace(cell, port=hello.get('port', 0))
                return hello | run_module(_PEER, 'client', words(cell), start=hosts.clients,
                                          limit=_START_S + _CELL_S + cell.limit)
        except RuntimeError as error:
            raise RuntimeError(f'{cell.way}: {str(error).splitlines()[-1]}') from None
    raise RuntimeError(f'{cell.way}: the server has ended')


def measure(hosts: Hosts, options: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    samples, transport = [], ''
    for number in range(options.rounds):
        for cell in cells(options, hosts, number):
            found = run(hosts, cell)
            transport = found['transport'] if cell.way == 'dds' else transport
            line = sample(hosts.name, number, cell, found)
            samples.append(line)
            shown = (f'{line["MBps"]:.0f} MB/s' if cell.task == THROUGHPUT
                     else f'{line["p50_ms"] or float("nan"):.3f} ms there and back')
            report.log(f'{hosts.name}, round {number + 1} of {options.rounds}: {cell.size:,} '
                       f'bytes, {cell.way}: {shown}, {line["lost"]} of {line["asked"]} lost')
    return samples, transport


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = report.Parser('bench_transport', __doc__, quick='one round, a tenth of the packets')
    parser.add_argument('--namespaces', action='store_true',
                        help='once more between two network namespaces (root)')
    parser.numbers('--sizes', 'bytes of data in a packet', ('8000,800000,4000000',) * 2,
                   (1, MAX_SIZE))
    parser.numbers('--round-trips', 'bytes of data in a packet that comes back',
                   ('100,28000,230000',) * 2, (1, MAX_SIZE))
    parser.number('--packets', int, 'packets in a round (160 MB of them, at most 2000)',
                  (None, None), (1, 100_000))
    parser.number('--trips', int, 'round trips in a round (500; quick: 50)', (None, None),
                  (1, 100_000))
    parser.number('--rounds', int, 'rounds', (5, 1), (1, 1000))
    parser.number('--limit', float, 'seconds after which a packet counts as lost', (10.0, 2.0),
                  (1, 600))
    return parser.complete(words)


def sample(hosts: str, number: int, cell: Cell, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of one cell of one round; rates count what the server received."""
    got = found['received']
    line: dict[str, Any] = {
        'hosts': hosts, 'round': number, 'task': cell.task, 'way': cell.way, 'size': cell.size,
        'asked': cell.packets, 'received': got, 'lost': cell.packets - got}
    if cell.task == ROUND_TRIP:
        return line | {'p50_ms': report.median(found['trips_ms'])}
    return line | {'MBps': got * cell.size / found['seconds'] / MB}


def rows(samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the medians of samples that differ in their round only, in order of appearance."""
    keys = ('hosts', 'task', 'size', 'way')
    together: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for each in samples:
        together.setdefault(tuple(each[name] for name in keys), []).append(each)
    found = []
    for key, group in together.items():
        row = dict(zip(keys, key, strict=True)) | {'rounds': len(group)} | {
            name: sum(each[name] for each in group) for name in ('asked', 'received', 'lost')} | {
            name: report.median(each[name] for each in group) for name in group[0]
            if name in ('p50_ms', 'MBps')}
        row['of_tcp'] = _ratio(group, together.get((*key[:3], 'tcp'), ()))
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
        THROUGHPUT: {
            'bytes': '{size:,}', 'way': '{way}', 'MB/s': '{MBps:,.0f}', 'lost': '{lost}',
            'of TCP': '{of_tcp:.2f}', 'seed, MB/s': '{seed:,.0f}'},
        ROUND_TRIP: {
            'bytes': '{size:,}', 'way': '{way}', 'p50 ms': '{p50_ms:.3f}', 'lost': '{lost}',
            'of TCP': '{of_tcp:.1f}'}}
    for hosts in dict.fromkeys(row['hosts'] for row in found):
        for task, columns in tables.items():
            mine = [{**row, 'seed': SEED.get((hosts, row['size'], row['way']))}
                    for row in found if (row['hosts'], row['task']) == (hosts, task)]
            lines += [f'### {task}, {hosts}', '', *report.columns(columns, mine), '']
    return '\n'.join([*lines, SEED_NOTE])

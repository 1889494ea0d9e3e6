"""DDS as this package uses it, beside raw TCP: throughput, processor time, losses, round trips.

    ros2 run vdl_ros bench_transport [--quick] [--namespaces] [--json] [--output FILE]

One server receives from 1, 2 and 3 clients, each a process; with --namespaces once more between
two network namespaces. The ways take turns, round after round: ``tcp`` (a socket for each client,
length-prefixed packets, no delay, one receive buffer), ``tcp-kept`` (a new buffer for each
packet, as with DDS), ``dds-events``, ``dds-single``, ``dds-multi`` (trajectories, encoded and
decoded for each packet, by executor) and ``dds-serialized`` (the same bytes, encoded once and
never decoded: the cost of the transport alone). Executor ``multi`` is slow and sends a tenth of
the packets.

A sample is one cell of one round; a row has the medians of a cell's samples. Ratios are medians
of the ratios within each round.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.transport.cell import WAYS, Cell
from benchmarks.transport.peers import ONE_HOST, Hosts, Team, two_hosts

# Under way in each client over DDS: as many bytes as TCP's window grows to, at most 64 packets,
# and from all clients together at most the depth of the topic.
WINDOW_BYTES, MOST_UNDER_WAY, DEPTH = 4_000_000, 64, 256
LARGEST = 64_000_000
MOST_CLIENTS = 16

MB = 1e6
LARGE, LEAST_RATIO = 800_000, 0.5  # from so many bytes on DDS shall reach half of TCP
ASKED, MOST_MS = 28_000, 0.3  # the round trip of so many bytes has an aim
MAIN = 'dds-events'
# The seed's speed test: raw TCP, one client, MB/s, by its own clock around send() alone; on one
# host, and between two of a cluster (1 Gb/s).
SEED = {('one host', 8_000): 378.7, ('one host', 800_000): 3255.0,
        ('two namespaces', 8_000): 224.4, ('two namespaces', 800_000): 253.7}
SEED_NOTE = (
    'seed: raw TCP with one client, timed around `send()` alone, on one host, and on a cluster '
    'of 1 Gb/s beside the two namespaces. There 2 clients had 65 to 70 MB/s each, 3 clients 40 '
    'to 43.')


def cells(options: argparse.Namespace, number: int) -> Iterator[Cell]:
    """Yield the cells of a round; each round begins with another way."""
    ways = options.ways[number % len(options.ways):] + options.ways[:number % len(options.ways)]
    # 160 MB a client are a tenth of a second over TCP, and half a second over DDS.
    volume, most = (16_000_000, 200) if options.quick else (160_000_000, 2000)
    token = number * 4096
    for task, sizes in (('throughput', options.sizes), ('round_trip', options.round_trips)):
        for size in sizes:
            for clients in options.clients if task == 'throughput' else (1,):
                window = min(max(WINDOW_BYTES // size, 2), MOST_UNDER_WAY, DEPTH // clients)
                for way in ways:
                    token += 1
                    if task == 'throughput':
                        count = options.packets or min(max(volume // size, 4), most)
                    else:
                        count = options.trips or (50 if options.quick else 500)
                    if WAYS[way].family == 'multi':  # it would take all of the time
                        count = max(count // 10, 4)
                    yield Cell(way, task, clients, size, count, window, options.limit, token)


def measure(hosts: Hosts, options: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    """Return the samples of all rounds, and the transport in force."""
    samples = []
    with contextlib.ExitStack() as stack:
        teams = {family: stack.enter_context(contextlib.closing(
                     Team(family, hosts, max(options.clients))))
                 for family in dict.fromkeys(WAYS[way].family for way in options.ways)}
        for way in options.ways:  # warm-up
            teams[WAYS[way].family].measure(Cell(
                way, 'throughput', max(options.clients), max(options.sizes), 4, 2, options.limit,
                1 << 40))
        for number in range(options.rounds):
            for cell in cells(options, number):
                line = sample(hosts.name, number, cell,
                              teams[WAYS[cell.way].family].measure(cell))
                samples.append(line)
                report.log(progress(line, options.rounds))
        return samples, next((team.transport for family, team in teams.items()
                              if family != 'tcp'), 'TCP')


def progress(line: dict[str, Any], rounds: int) -> str:
    """Return a sample as one line."""
    found = (f'{line["MBps"]:7.0f} MB/s' if line['task'] == 'throughput'
             else f'{line["p50_ms"] or float("nan"):7.3f} ms there and back')
    lost = f', {line["lost"]} of {line["asked"]} lost' if line['lost'] else ''
    return (f'{line["hosts"]}, round {line["round"] + 1} of {rounds}: {_size(line["size"])}, '
            f'clients: {line["clients"]}, {line["way"]}: {found}{lost}')


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = report.Parser('bench_transport', __doc__, quick='two rounds, a tenth of the packets')
    parser.add_argument('--namespaces', action='store_true',
                        help='once more between two network namespaces (root)')
    parser.add_argument('--ways', default=','.join(WAYS), metavar='W,W',
                        help=f'of {", ".join(WAYS)}')
    parser.add_argument('--clients', default='1,2,3', metavar='N,N')
    parser.add_argument('--sizes', default='8000,800000,4000000', metavar='N,N',
                        help='bytes of data in a packet')
    parser.add_argument('--round-trips', default='100,28000,230000', metavar='N,N',
                        help='bytes of data in a packet that comes back')
    parser.add_argument('--packets', type=int, metavar='N',
                        help='packets of each client in a round (160 MB of them, at most 2000)')
    parser.add_argument('--trips', type=int, metavar='N', help='round trips in a round (500)')
    parser.add_argument('--rounds', type=int, metavar='N', help='rounds (5, quick 2)')
    parser.add_argument('--limit', type=float, metavar='S',
                        help='seconds after which a packet counts as lost (10, quick 2)')
    options = parser.parse_args(words)
    # Under a minute, also with namespaces.
    report.complete(
        options, {'rounds': (5, 1 if options.namespaces else 2), 'limit': (10.0, 2.0)},
        {'packets': (1, 100_000), 'trips': (1, 100_000), 'rounds': (1, 1000), 'limit': (1, 600)})
    options.ways = list(dict.fromkeys(options.ways.split(',')))
    for word in options.ways:
        if word not in WAYS:
            raise ValueError(f'--ways: {word!r} is not one of {", ".join(WAYS)}')
    for name, high in (('clients', MOST_CLIENTS), ('sizes', LARGEST), ('round_trips', LARGEST)):
        setattr(options, name, report.numbers(
            f'--{name.replace("_", "-")}', getattr(options, name), 1, high))
    return options


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which ``share`` of all lie (nearest rank); None of none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


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
        return line | {'lost': asked - len(trips), 'p50_ms': percentile(trips, 0.5),
                       'p99_ms': percentile(trips, 0.99)}
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
        for name, way in (('of_tcp', 'tcp'), ('of_tcp_kept', 'tcp-kept')):
            row[name] = _ratio(group, together.get((*key[:4], way), ()))
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


def aims(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each aim with what was measured and whether it was reached, by hosts."""
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


def interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt; ignore later signals, so that all processes are ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Measure, and print the tables or one JSON object."""
    return report.run('bench_transport', parse, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
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
    medians = rows(samples)
    report.deliver('transport', {
        'transport': transports,
        'namespaces': missing or ('measured' if options.namespaces else 'not asked for'),
        'rounds': options.rounds, 'quick': options.quick, 'rows': medians,
        'aims': aims(medians)}, options, lambda found: markdown(found['rows'], found['aims']))


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
    return (_size(row['size']), str(row['clients']), row['way'], _text(row['MBps_each'], 0),
            _text(row['MBps'], 0), _text(row['packets_per_s'], 0), _text(row['cpu_ms_per_MB'], 2),
            _lost(row), _text(row['of_tcp'], 2), _text(row['of_tcp_kept'], 2), _text(seed, 0))


def _round_trip(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (_size(row['size']), row['way'], _text(row['p50_ms'], 3), _text(row['p99_ms'], 3),
            _lost(row), _text(row['of_tcp'], 1), _text(row['of_tcp_kept'], 1))


def _size(size: int) -> str:
    """Return bytes as people write them."""
    if size >= 1_000_000:
        return f'{size / 1e6:g} MB'
    return f'{size / 1e3:g} KB' if size >= 1000 else f'{size} B'


def _lost(row: Mapping[str, Any]) -> str:
    return '0' if not row['lost'] else f'{row["lost"]} of {row["asked"]}'


def _text(value: float | None, digits: int) -> str:
    return '-' if value is None else f'{value:,.{digits}f}'

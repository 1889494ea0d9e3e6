"""DDS as this package uses it, beside raw TCP: throughput, processor time, losses, round trips.

    ros2 run vdl_ros bench_transport [--quick] [--namespaces] [--json] [--output FILE]

One server receives from 1, 2 and 3 clients, each a process; with --namespaces once more between
two network namespaces. The ways take turns, round after round: ``tcp`` (a socket for each client,
length-prefixed packets, no delay, one receive buffer), ``tcp-kept`` (a new buffer for each
packet, as with DDS), ``dds-events``, ``dds-single``, ``dds-multi`` (trajectories, encoded and
decoded for each packet, by executor) and ``dds-serialized`` (the same bytes, encoded once and
never decoded: the cost of the transport alone). Executor ``multi`` is slow and sends a tenth of
the packets.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import report
from benchmarks.transport.cell import WAYS, Cell
from benchmarks.transport.peers import ONE_HOST, Hosts, Team, two_hosts
from benchmarks.transport.table import aims, markdown, rows, sample, size_text

# Under way in each client over DDS: as many bytes as TCP's window grows to, at most 64 packets,
# and from all clients together at most the depth of the topic.
WINDOW_BYTES, MOST_UNDER_WAY, DEPTH = 4_000_000, 64, 256
LARGEST = 64_000_000
MOST_CLIENTS = 16


def window(size: int, clients: int) -> int:
    """Return the packets of ``size`` bytes that a client may have under way; at least two."""
    return min(max(WINDOW_BYTES // size, 2), MOST_UNDER_WAY, DEPTH // clients)


def packets(size: int, volume: int, most: int) -> int:
    """Return how many packets of ``size`` bytes make ``volume`` bytes; 4 to ``most``."""
    return min(max(volume // size, 4), most)


def cells(options: argparse.Namespace, number: int) -> Iterator[Cell]:
    """Yield the cells of a round; each round begins with another way."""
    ways = options.ways[number % len(options.ways):] + options.ways[:number % len(options.ways)]
    # 160 MB a client are a tenth of a second over TCP, and half a second over DDS.
    volume, most = (16_000_000, 200) if options.quick else (160_000_000, 2000)
    token = number * 4096
    for task, sizes in (('throughput', options.sizes), ('round_trip', options.round_trips)):
        for size in sizes:
            for clients in options.clients if task == 'throughput' else (1,):
                for way in ways:
                    token += 1
                    if task == 'throughput':
                        count = options.packets or packets(size, volume, most)
                    else:
                        count = options.trips or (50 if options.quick else 500)
                    if WAYS[way].family == 'multi':  # it would take all of the time
                        count = max(count // 10, 4)
                    yield Cell(way, task, clients, size, count, window(size, clients),
                               options.limit, token)


def measure(hosts: Hosts, options: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    """Return the samples of all rounds, and the transport in force.

    Raises:
        PeerError: a process does not start, does not answer or has failed.
    """
    samples = []
    with contextlib.ExitStack() as stack:
        teams = {family: stack.enter_context(contextlib.closing(
                     Team(family, hosts, max(options.clients))))
                 for family in dict.fromkeys(WAYS[way].family for way in options.ways)}
        for way in options.ways:  # warm-up
            size = max(options.sizes)
            teams[WAYS[way].family].measure(Cell(
                way, 'throughput', max(options.clients), size, 4, 2, options.limit, 1 << 40))
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
    return (f'{line["hosts"]}, round {line["round"] + 1} of {rounds}: {size_text(line["size"])}, '
            f'clients: {line["clients"]}, {line["way"]}: {found}{lost}')


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
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

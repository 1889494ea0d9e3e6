"""
DDS as this package uses it, beside raw TCP: throughput, processor time, losses, round trips.

    ros2 run vdl_ros bench_transport [--quick] [--namespaces] [--json] [--output FILE]

One server receives from 1, 2 and 3 clients, each a process; with --namespaces once more between
two network namespaces. The ways are measured in turn, round after round: ``tcp`` (a socket for
each client, length-prefixed packets, no delay, all into the same memory), ``tcp-kept`` (each
packet into memory of its own, as with DDS), ``dds-events``, ``dds-single``, ``dds-multi``
(trajectories, encoded and decoded for each packet, by executor) and ``dds-serialized`` (the same
bytes, encoded once and never decoded: what is left is the transport's own share). Executor
``multi`` is so slow that it sends a tenth of the packets.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import report
from benchmarks.transport.cell import WAYS, Cell
from benchmarks.transport.peers import ONE_HOST, Hosts, PeerError, Team, two_hosts
from benchmarks.transport.table import aims, markdown, rows, sample, size_text

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130

SIZES = (8_000, 800_000, 4_000_000)
ROUND_TRIPS = (100, 28_000, 230_000)
# Under way in each client over DDS: what TCP's own window grows to, at most 64 packets, and from
# all clients together what the topic's profile keeps.
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
    """Give the cells of a round; the order of the ways turns from round to round."""
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
    """
    Return the samples of all rounds, and the transport in force.

    Raises:
        PeerError: a process does not start, does not answer or has failed.
    """
    samples = []
    with contextlib.ExitStack() as stack:
        teams = {family: stack.enter_context(contextlib.closing(
                     Team(family, hosts, max(options.clients))))
                 for family in dict.fromkeys(WAYS[way].family for way in options.ways)}
        for way in options.ways:  # the first packets of a process are not like the others
            size = max(options.sizes)
            teams[WAYS[way].family].measure(Cell(
                way, 'throughput', max(options.clients), size, 4, 2, options.limit, 1 << 40))
        for number in range(options.rounds):
            for cell in cells(options, number):
                line = sample(hosts.name, number, cell,
                              teams[WAYS[cell.way].family].measure(cell))
                samples.append(line)
                say(progress(line, options.rounds))
        return samples, next((team.transport for family, team in teams.items()
                              if family != 'tcp'), 'TCP')


def progress(line: dict[str, Any], rounds: int) -> str:
    """Return a sample as one line."""
    found = (f'{line["MBps"]:7.0f} MB/s' if line['task'] == 'throughput'
             else f'{line["p50_ms"] or float("nan"):7.3f} ms there and back')
    lost = f', {line["lost"]} of {line["asked"]} lost' if line['lost'] else ''
    return (f'{line["hosts"]}, round {line["round"] + 1} of {rounds}: {size_text(line["size"])}, '
            f'clients: {line["clients"]}, {line["way"]}: {found}{lost}')


def say(text: str) -> None:
    """Print a line that is no result."""
    print(text, file=sys.stderr, flush=True)


def numbers(low: int, high: int) -> Any:
    """Return an argument's type: numbers between ``low`` and ``high``, with commas between."""
    def parse(text: str) -> list[int]:
        try:
            found = [int(word) for word in text.split(',')]
        except ValueError:
            found = []
        if not found or not all(low <= each <= high for each in found):
            raise argparse.ArgumentTypeError(
                f'{text!r} is not allowed: numbers from {low} to {high}, with commas between')
        return list(dict.fromkeys(found))
    return parse


def number(low: int, high: int) -> Any:
    """Return an argument's type: one number between ``low`` and ``high``."""
    def parse(text: str) -> int:
        if not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not allowed: a number from {low} to {high}')
        return int(text)
    return parse


def ways(text: str) -> list[str]:
    """Return the ways that a text names."""
    found = list(dict.fromkeys(text.split(',')))
    for word in found:
        if word not in WAYS:
            raise argparse.ArgumentTypeError(f'{word!r} is not one of {", ".join(WAYS)}')
    return found


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; bad ones end the process with one line and status 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[1])
    # One line for bad input, without the usage before it.
    parser.error = lambda message: parser.exit(  # type: ignore[method-assign]
        EXIT_BAD_INPUT, f'bench_transport: {message}\n')
    parser.add_argument('--quick', action='store_true', help='two rounds, a tenth of the packets')
    parser.add_argument('--namespaces', action='store_true',
                        help='once more between two network namespaces (root)')
    parser.add_argument('--ways', type=ways, default=list(WAYS), metavar='W,W',
                        help=f'of {", ".join(WAYS)}')
    parser.add_argument('--clients', type=numbers(1, MOST_CLIENTS), default=[1, 2, 3],
                        metavar='N,N')
    parser.add_argument('--sizes', type=numbers(1, LARGEST), default=list(SIZES), metavar='N,N',
                        help='bytes of data in a packet')
    parser.add_argument('--round-trips', type=numbers(1, LARGEST), default=list(ROUND_TRIPS),
                        metavar='N,N', help='bytes of data in a packet that comes back')
    parser.add_argument('--packets', type=number(1, 100_000), metavar='N',
                        help='packets of each client in a round (160 MB of them, at most 2000)')
    parser.add_argument('--trips', type=number(1, 100_000), metavar='N',
                        help='round trips in a round (500)')
    parser.add_argument('--rounds', type=number(1, 1000), metavar='N', help='rounds (5, quick 2)')
    parser.add_argument('--limit', type=number(1, 600), metavar='S',
                        help='seconds until what has not come is lost (10, quick 2)')
    report.add_options(parser)
    options = parser.parse_args(words)
    # Under a minute, whatever else is asked.
    quick = 1 if options.namespaces else 2
    options.rounds = options.rounds or (quick if options.quick else 5)
    options.limit = float(options.limit or (2 if options.quick else 10))
    try:
        report.check_output(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def interrupt(*_: object) -> None:
    """End in order; a second Ctrl-C does not disturb it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print the tables or one JSON object."""
    options = parse(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    samples, transports, missing = [], {}, ''
    try:
        found, transports[ONE_HOST.name] = measure(ONE_HOST, options)
        samples += found
        if options.namespaces:
            try:
                with two_hosts() as hosts:
                    found, transports[hosts.name] = measure(hosts, options)
                    samples += found
            except OSError as error:
                missing = f'no network namespaces here: {error}'
                say(f'bench_transport: {missing}')
    except PeerError as error:
        say(f'bench_transport: {error}')
        return EXIT_FAILED
    except KeyboardInterrupt:
        say('bench_transport: interrupted')
        return EXIT_INTERRUPTED
    medians = rows(samples)
    report.deliver({
        'benchmark': 'transport', 'machine': report.machine(), 'transport': transports,
        'namespaces': missing or ('measured' if options.namespaces else 'not asked for'),
        'rounds': options.rounds, 'quick': options.quick, 'rows': medians,
        'aims': aims(medians)}, options, lambda found: markdown(found['rows'], found['aims']))
    return 0

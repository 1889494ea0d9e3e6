"""Speed-up of learners that exchange the changes of their weights, by the size of these.

    ros2 run vdl_ros bench_exchange [--learners N] [--periods N,N] [--batches N] [--quick] [--json]
        [--output FILE]

The synthetic table of VDL: each learner sleeps for the time of a batch, and every so many batches
all add up as many bytes as VDL's peers sent. The sums are those of ``exchange:=delta``: real
processes, Gloo, here all on this host. A period of 1 is also what gradients cost. The speed-up is
the time that one learner needs for all batches over that of all learners, each with its share.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report

#: kB of a sum, and s of a batch: the speed-up of six machines with 1 Gbit/s, of VDL's
#: generic_benchmark.xlsx.
SEED: Mapping[tuple[int, float], float] = {
    (10, 0.07): 5.93, (300, 0.2): 4.70, (2500, 0.8): 5.47, (9200, 2.8): 5.72}
TIMEOUT_S = 60.0
DEFAULTS: dict[str, tuple[Any, Any]] = {
    'learners': (6, 2), 'periods': ('1,10', '1,2'), 'batches': (20, 2)}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked options, ``periods`` as numbers.

    Raises:
        ValueError: one that is not allowed; the message is one line.
    """
    parser = report.Parser('bench_exchange', __doc__, quick='two learners, two batches')
    parser.add_argument('--learners', type=int, metavar='N', help='processes (6; quick: 2)')
    parser.add_argument('--periods', metavar='N,N',
                        help='batches from one exchange to the next (1,10; quick: 1,2)')
    parser.add_argument('--batches', type=int, metavar='N',
                        help='of each learner, a multiple of each period (20; quick: 2)')
    options = parser.parse_args(words)
    report.complete(options, DEFAULTS, {'learners': (2, 64), 'batches': (1, 10_000)})
    options.periods = report.numbers('--periods', options.periods, 1, options.batches)
    for period in options.periods:
        if options.batches % period:
            raise ValueError(f'--batches: {options.batches} is not allowed: a multiple of '
                             f'--periods, {period}')
    return options


def _learn(rank: int, options: argparse.Namespace, address: str, results: Any) -> None:
    """Run all cells as one learner; learner 0 delivers the s of a batch in each."""
    import torch

    from vdl_ros.rl.distributed.process_group import join
    torch.set_num_threads(1)
    group = join(rank, options.learners, address, TIMEOUT_S)
    assert group is not None  # only if it was told to stop
    for size, batch_s in SEED:
        change = torch.zeros(size * 1000 // 4)
        for period in options.periods:
            group.all_reduce_sum(change)  # all begin together
            began = time.monotonic()
            for number in range(1, options.batches + 1):
                time.sleep(batch_s)
                if number % period == 0:
                    group.all_reduce_sum(change)
            if rank == 0:
                results.put((size, period, (time.monotonic() - began) / options.batches))
    group.close()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return a row for each size: its speed-ups by period.

    Raises:
        RuntimeError: a learner failed.
    """
    with socket.create_server(('127.0.0.1', 0)) as free:
        address = f'127.0.0.1:{free.getsockname()[1]}'
    # This process has neither threads nor PyTorch yet.
    context = multiprocessing.get_context('fork')
    results = context.SimpleQueue()
    learners = [context.Process(target=_learn, args=(rank, options, address, results), daemon=True)
                for rank in range(options.learners)]
    for learner in learners:
        learner.start()
    found: dict[tuple[int, int], float] = {}
    while len(found) < len(SEED) * len(options.periods):
        if results.empty():
            if any(learner.exitcode not in (0, None) for learner in learners):
                raise RuntimeError('a learner failed; its error is above')
            time.sleep(0.1)
            continue
        size, period, seconds = results.get()
        found[size, period] = seconds
        report.log(f'{size:,} kB, every {period} batches: {seconds:.3f} s a batch')
    for learner in learners:
        learner.join()
    return {'learners': options.learners, 'batches': options.batches, 'rows': [
        {'kilobytes': size, 'batch_s': batch_s, 'seed': seed, 'speedups': {
            str(period): options.learners * batch_s / found[size, period]
            for period in options.periods}}
        for (size, batch_s), seed in SEED.items()]}


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table for a page."""
    periods = list(found['rows'][0]['speedups'])
    return '\n'.join([
        *report.table(
            ('a sum, kB', 'a batch, s', *(f'every {each}: speed-up' for each in periods),
             'VDL, 6 machines'),
            ((f'{row["kilobytes"]:,}', f'{row["batch_s"]:g}',
              *(f'{row["speedups"][each]:.2f}' for each in periods), f'{row["seed"]:.2f}')
             for row in found['rows'])),
        '', f'{found["learners"]} learners on one host, {found["batches"]} batches of each.'])


def main() -> int:
    """Measure, and print the table or one JSON object."""
    return report.run('bench_exchange', arguments, lambda options: report.deliver(
        'exchange', measure(options), options, markdown))

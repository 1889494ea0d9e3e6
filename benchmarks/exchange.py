"""Speed-up of learners that exchange the changes of their weights, by the size of these.

The synthetic table of VDL: each learner sleeps for the time of a batch, and every so many batches
all add up as many bytes as VDL's peers sent. The sums are those of ``exchange:=delta``: real
processes, Gloo, here all on this host. A period of 1 is also what gradients cost. The speed-up is
the time that one learner needs for all batches over that of all learners, each with its share.
"""

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


def _learn(rank: int, learners: int, batches: int, periods: Sequence[int], address: str,
           results: Any) -> None:
    """Run all cells as one learner; learner 0 delivers the s of a batch in each."""
    import torch

    from vdl_ros.rl.distributed.process_group import join
    torch.set_num_threads(1)
    group = join(rank, learners, address, TIMEOUT_S)
    assert group is not None  # only if it was told to stop
    for size, batch_s in SEED:
        change = torch.zeros(size * 1000 // 4)
        for period in periods:
            group.all_reduce_sum(change)  # all begin together
            began = time.monotonic()
            for number in range(1, batches + 1):
                time.sleep(batch_s)
                if number % period == 0:
                    group.all_reduce_sum(change)
            if rank == 0:
                results.put((size, period, (time.monotonic() - began) / batches))
    group.close()


def measure(learners: int, batches: int, periods: Sequence[int]) -> dict[str, Any]:
    """Return a row for each size: its speed-ups by period."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        address = f'127.0.0.1:{free.getsockname()[1]}'
    # This process has neither threads nor PyTorch yet.
    context = multiprocessing.get_context('fork')
    results = context.SimpleQueue()
    group = [context.Process(target=_learn, daemon=True,
                             args=(rank, learners, batches, periods, address, results))
             for rank in range(learners)]
    for learner in group:
        learner.start()
    found: dict[tuple[int, int], float] = {}
    while len(found) < len(SEED) * len(periods):
        if results.empty():
            if any(learner.exitcode not in (0, None) for learner in group):
                raise RuntimeError('a learner failed; its error is above')
            time.sleep(0.1)
            continue
        size, period, seconds = results.get()
        found[size, period] = seconds
        report.log(f'{size:,} kB, every {period} batches: {seconds:.3f} s a batch')
    for learner in group:
        learner.join()
    return {'learners': learners, 'batches': batches, 'rows': [
        {'kilobytes': size, 'batch_s': batch_s, 'seed': seed, 'speedups': {
            str(period): learners * batch_s / found[size, period] for period in periods}}
        for (size, batch_s), seed in SEED.items()]}


def markdown(found: Mapping[str, Any]) -> str:
    periods = found['rows'][0]['speedups']
    return '\n'.join([
        *report.columns(
            {'a sum, kB': '{kilobytes:,}', 'a batch, s': '{batch_s:g}',
             **{f'every {each}: speed-up': f'{{every{each}:.2f}}' for each in periods},
             'VDL, 6 machines': '{seed:.2f}'},
            ({**row, **{f'every{each}': row['speedups'][each] for each in periods}}
             for row in found['rows'])),
        '', f'{found["learners"]} learners on one host, {found["batches"]} batches of each.'])

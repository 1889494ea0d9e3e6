"""Figures of bench_scaling beside those of the seeds: samplers, actors, learners; their tables."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import report
from vdl_ros.common.metrics import ACTING, TRAINING

# WALL-E, HalfCheetah-v2, 20,000 samples an iteration, read off its plots to 5 %: minutes of
# collecting and of learning by samplers. The machine is not stated.
SEED_SAMPLERS: Mapping[int, tuple[float, float]] = {
    1: (0.233, 0.035), 2: (0.123, 0.041), 5: (0.038, 0.035), 8: (0.028, 0.047),
    10: (0.019, 0.038), 20: (0.012, 0.038)}
# impala_horovod_gym, Pong, each learner with a GPU and 45 actors of its own, an actor is one
# machine of 4 cores, gradients averaged by Horovod: agent steps/s of all by learners.
SEED_LEARNERS: Mapping[int, float] = {
    1: 5800.0, 2: 10800.0, 3: 15600.0, 4: 18800.0, 5: 21000.0, 6: 21600.0, 7: 21700.0, 8: 21600.0}

_COLLECTING = ('step', 'infer', 'encode', 'publish')
_LEARNING = ('decode', 'learn', 'encode', 'publish')

#: One run, as ``run_graph`` returns it. Of several, one for each round, figures are medians.
Run = Mapping[str, Any]


def sampler_row(samplers: int, runs: Sequence[Run], samples: int) -> dict[str, Any]:
    """Return the figures of so many samplers, s of an iteration of ``samples`` agent steps.

    ``collection_s`` is how long the samplers collect, ``learning_s`` how long the learner learns;
    ``total_s`` is their sum, as for a loop that does one after the other; ``iteration_s`` is the
    duration of an iteration here, where both run at the same time.
    """
    iteration = [samples / run['steps_per_s'] for run in runs]
    collection = [_collecting(run) * each for run, each in zip(runs, iteration, strict=True)]
    learning = [sum(_share(run, name) for name in _LEARNING) * each
                for run, each in zip(runs, iteration, strict=True)]
    seed = SEED_SAMPLERS.get(samplers)
    return {
        'samplers': samplers, 'collection_s': statistics.median(collection),
        'learning_s': statistics.median(learning),
        'total_s': statistics.median(map(sum, zip(collection, learning, strict=True))),
        'iteration_s': statistics.median(iteration),
        'seed': seed and {
            'collection_s': seed[0] * 60, 'learning_s': seed[1] * 60, 'total_s': sum(seed) * 60}}


def with_speedups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the samplers' rows with speed-ups over one sampler, of which there is a row."""
    one = next(row for row in rows if row['samplers'] == 1)

    def speedup(row: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, float]:
        return {'speedup': base['total_s'] / row['total_s']}

    return [{**row, **speedup(row, one), 'seed': row['seed'] and {
        **row['seed'], **speedup(row['seed'], one['seed'])}} for row in rows]


def actor_row(actors: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the figures of so many actors.

    ``learner_busy`` is the share of time in which the training thread does not wait.
    """
    return {'actors': actors, 'steps_per_s': _median(runs, _speed),
            'learner_busy': _median(runs, lambda run: 1.0 - _share(run, 'wait'))}


def learner_row(learners: int, runs: Sequence[Run], actors_each: int) -> dict[str, Any]:
    """Return the figures of so many learners.

    ``learner_waits`` is a share of the training threads' time, the mean of all learners;
    ``update_s`` is the time of an update, with the sums over all learners.
    """
    def updates_per_s(run: Run) -> float:
        summary = run['summary']
        return float(run['steps_per_s'] * summary['updates'] / summary['agent_steps'])

    return {
        'learners': learners, 'actors': learners * actors_each,
        'steps_per_s': _median(runs, _speed),
        'learner_waits': _median(runs, lambda run: _share(run, 'wait')),
        'update_s': _median(runs, lambda run: _share(run, 'learn') / updates_per_s(run))}


def with_efficiencies(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the learners' rows with seed and speed-up over the row of one learner.

    ``efficiency`` is the speed-up over the number of learners.
    """
    one = next(row for row in rows if row['learners'] == 1)['steps_per_s']

    def gains(learners: int, speed: float, base: float) -> dict[str, float]:
        return {'steps_per_s': speed, 'speedup': speed / base,
                'efficiency': speed / base / learners}

    return [{**row, **gains(row['learners'], row['steps_per_s'], one),
             'seed': gains(row['learners'], SEED_LEARNERS[row['learners']], SEED_LEARNERS[1])
             if row['learners'] in SEED_LEARNERS else None} for row in rows]


def _median(runs: Sequence[Run], figure: Callable[[Run], float]) -> float:
    return statistics.median(map(figure, runs))


def _speed(run: Run) -> float:
    return float(run['steps_per_s'])


def _share(run: Run, phase: str, thread: str = TRAINING) -> float:
    """Return the share of a phase, the mean of all nodes with such a thread."""
    return statistics.mean(threads[thread].get(phase, 0.0)
                           for threads in run['time_shares'].values() if thread in threads)


def _collecting(run: Run) -> float:
    """Return the share of time in which actors collect."""
    return sum(_share(run, name, ACTING) for name in _COLLECTING)


def samplers_text(found: Mapping[str, Any]) -> str:
    """Return the samplers' table for a page, in Markdown."""
    return '\n'.join([
        f'Samplers: {found["sampler_env"]} ({found["samplers"][0]["environments"]}), '
        f'{found["samples"]:,} samples an iteration, s; in brackets WALL-E\'s (computing). '
        'The speed-up of the total is over one sampler. "iteration" is ours alone: samplers and '
        'learner at the same time.',
        '',
        *report.columns({
            'samplers': '{samplers}', 'collection': _beside('collection_s', '.2f'),
            'learning': _beside('learning_s', '.2f'), 'total': _beside('total_s', '.2f'),
            'iteration': '{iteration_s:.2f}',
            'speed-up': _beside('speedup', '.1f')}, found['samplers'])])


def actors_text(found: Mapping[str, Any]) -> str:
    """Return the actors' table for a page, in Markdown."""
    best = max(found['actors'], key=lambda row: float(row['steps_per_s']))
    return '\n'.join([
        f'Actors: {found["actor_env"]} ({found["actors"][0]["environments"]}), one learner, agent '
        'steps/s.',
        '',
        *report.columns({
            'actors': '{actors}', 'steps/s': '{steps_per_s:,.0f}',
            'learner busy': '{learner_busy:.0%}'}, found['actors']),
        '',
        f'{found["cores"]} cores, {found["rounds"]} rounds. Fastest were {best["actors"]} '
        "actors. With a GPU, impala_horovod_gym's learner of Pong took in 6,200, of 45 actors of "
        '4 cores each (computing).'])


def learners_text(found: Mapping[str, Any]) -> str:
    """Return the learners' table for a page, in Markdown."""
    return '\n'.join([
        f'Learners: {found["learner_env"]} ({found["learners"][0]["environments"]}), '
        f'{found["actors_each"]} actors for each learner, '
        f'{found["settings"]["learners"]["num_envs"]} environments an actor, agent steps/s of '
        'all; in brackets impala_horovod_gym\'s (computing, 45 actors for each learner). Speed-up '
        'is over one learner, efficiency is the speed-up over the number of learners. "waits" is '
        'a share of a learner\'s thread, "update" is how long it learns for one, sums over all '
        'learners included.',
        '',
        *report.columns({
            'learners': '{learners}', 'actors': '{actors}', 'steps/s': '{steps_per_s:,.0f}',
            'speed-up': _beside('speedup', '.2f'), 'efficiency': _beside('efficiency', '.2f'),
            'waits': '{learner_waits:.0%}', 'update, s': '{update_s:.3f}'}, found['learners']),
        '',
        f'{found["cores"]} cores, rounds: {found["rounds"]}, of {found["seconds"]:g} s each.'])


def _beside(name: str, form: str) -> str:
    """Return the format of a figure, and of the seed's in brackets."""
    return f'{{{name}:{form}}} ({{seed[{name}]:{form}}})'

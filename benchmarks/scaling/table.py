"""Figures of bench_scaling: samplers and actors beside those of the seeds, tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import report
from benchmarks.scaling.fit import fit, held_out
from vdl_ros.common.metrics import ACTING, TRAINING

__all__ = ['SEED_ACTORS', 'SEED_SAMPLERS', 'Run', 'actor_row', 'actors_text', 'common',
           'common_cells', 'law_of', 'sampler_row', 'samplers_text', 'with_speedups']

# WALL-E, HalfCheetah-v2, 20,000 samples an iteration, read off its plots to 5 %: minutes of
# collecting and of learning by samplers. The machine is not stated.
SEED_SAMPLERS: Mapping[int, tuple[float, float]] = {
    1: (0.233, 0.035), 2: (0.123, 0.041), 5: (0.038, 0.035), 8: (0.028, 0.047),
    10: (0.019, 0.038), 20: (0.012, 0.038)}
# impala_horovod_gym, Pong, one learner with a GPU, an actor is one machine of 4 cores: actors and
# agent steps/s. It measured 45 twice.
SEED_ACTORS = ((15, 2300.0), (25, 4300.0), (35, 6000.0), (45, 6200.0), (45, 5800.0),
               (50, 6200.0), (110, 6300.0))

_COLLECTING = ('step', 'infer', 'encode', 'publish')
_LEARNING = ('decode', 'learn', 'encode', 'publish')
_FULL = 0.9

Run = Mapping[str, Any]


def sampler_row(samplers: int, runs: Sequence[Run], samples: int, kind: str) -> dict[str, Any]:
    """Return the figures of so many samplers, medians over the rounds, s of one iteration.

    ``collection_s`` is how long the samplers collect, ``learning_s`` how long the learner learns;
    ``total_s`` is their sum, as for a loop that does one after the other; ``iteration_s`` is the
    duration of an iteration here, where both run at the same time.

    Args:
        runs: of each round, as ``run_graph`` returns them.
        samples: agent steps of an iteration.
        kind: of environments: asleep or computing.
    """
    def parts(run: Run) -> tuple[float, float, float]:
        iteration = samples / run['steps_per_s']
        learning = sum(_training(run).get(name, 0.0) for name in _LEARNING)
        return _collecting(run) * iteration, learning * iteration, iteration

    collection, learning, iteration = (
        [parts(run)[column] for run in runs] for column in range(3))
    seed = SEED_SAMPLERS.get(samplers)
    return {
        'samplers': samplers, 'environments': kind,
        'collection_s': statistics.median(collection), 'learning_s': statistics.median(learning),
        'total_s': statistics.median(
            sum(pair) for pair in zip(collection, learning, strict=True)),
        'iteration_s': statistics.median(iteration), 'iteration_s_rounds': iteration,
        **common(runs),
        'seed': None if seed is None else {
            'collection_s': seed[0] * 60, 'learning_s': seed[1] * 60, 'total_s': sum(seed) * 60}}


def with_speedups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the samplers' rows with speed-ups over one sampler, of which there is a row."""
    one = next(row for row in rows if row['samplers'] == 1)

    def speedups(row: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, float]:
        return {name.removesuffix('_s') + '_speedup': base[name] / row[name]
                for name in ('collection_s', 'total_s', 'iteration_s') if name in row}

    return [{**row, **speedups(row, one), 'seed': row['seed'] and {
        **row['seed'], **speedups(row['seed'], one['seed'])}} for row in rows]


def actor_row(actors: int, runs: Sequence[Run], kind: str) -> dict[str, Any]:
    """Return the figures of so many actors, medians over the rounds.

    ``learner_busy`` is the share of time in which the training thread does not wait;
    ``steps_per_s_busy`` is the speed divided by it.

    Args:
        runs: of each round, as ``run_graph`` returns them.
        kind: of environments: asleep or computing.
    """
    def median(figure: Callable[[Run], float]) -> float:
        return statistics.median(figure(run) for run in runs)

    def busy(run: Run) -> float:
        return 1.0 - float(_training(run).get('wait', 0.0))

    def wire(run: Run, way: str) -> float:
        summary = run['summary']
        return float(summary['wire_bytes'][way] / max(summary['agent_steps'], 1)
                     * run['steps_per_s'] / 1e6)

    return {
        'actors': actors, 'environments': kind,
        'steps_per_s': median(lambda run: float(run['steps_per_s'])),
        'steps_per_s_rounds': [run['steps_per_s'] for run in runs],
        'learner_busy': median(busy),
        'steps_per_s_busy': median(lambda run: run['steps_per_s'] / max(busy(run), 1e-3)),
        'actors_collecting': median(_collecting),
        'wire_in_mb_per_s': median(lambda run: wire(run, 'in')),
        # A policy crosses the wire once for each actor.
        'wire_out_mb_per_s': actors * median(lambda run: wire(run, 'out')),
        **common(runs)}


def _training(run: Run) -> Mapping[str, float]:
    shares: Mapping[str, float] = run['time_shares']['learner'][TRAINING]
    return shares


def _collecting(run: Run) -> float:
    """Return the share of time in which actors collect."""
    return statistics.mean(
        sum(threads[ACTING].get(name, 0.0) for name in _COLLECTING)
        for threads in run['time_shares'].values() if ACTING in threads)


def common(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the figures that all tables have; ``cores`` is the use of the whole graph."""
    return {
        'policy_lag': statistics.median(run['summary']['policy_lag']['mean'] for run in runs),
        'trajectories_lost': sum(run['summary']['trajectories_lost'] for run in runs),
        'cores': statistics.median(
            sum(each['cpu_cores'] for each in run['processes'].values()) for run in runs),
        'foreign_cores': statistics.median(run['foreign_cores'] for run in runs)}


def law_of(points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the law of actors and steps/s, and its prediction for the most actors.

    Raises:
        ValueError: too few numbers of actors for a law.
    """
    found, left_out = fit(points), held_out(points)
    return {**asdict(found), 'knee': found.knee, 'reached': found.reached,
            'begun': found.begun,
            f'actors_for_{_FULL:.0%}'.rstrip('%'): found.actors_for(_FULL),
            'points': [list(point) for point in points],
            'left_out': None if left_out is None else {
                'actors': left_out[0], 'predicted': left_out[1],
                'measured': statistics.median(
                    speed for actors, speed in points if actors == left_out[0])}}


def samplers_text(found: Mapping[str, Any]) -> str:
    """Return the samplers' table for a page, in Markdown."""
    return '\n'.join([
        f'Samplers: {found["sampler_env"]} ({found["samplers"][0]["environments"]}), '
        f'{found["samples"]:,} samples an iteration, s; in brackets WALL-E\'s (computing). '
        'Speed-ups are over one sampler. "iteration" is ours alone: samplers and learner at the '
        'same time.',
        '',
        *report.table(('samplers', 'environments', 'collection', 'learning', 'total', 'iteration',
                'collection speed-up', 'total speed-up', 'iteration speed-up', 'lag', 'lost',
                'cores', 'other cores'), map(_sampler_cells, found['samplers']))])


def actors_text(found: Mapping[str, Any]) -> str:
    """Return the actors' table and law for a page, in Markdown, the seed's below."""
    law = fit([(actors, speed) for actors, speed in found['law']['points']])
    seed = fit(SEED_ACTORS)
    best = max(found['actors'], key=lambda row: float(row['steps_per_s']))
    seeds = ((actors, statistics.median(y for n, y in SEED_ACTORS if n == actors))
             for actors in dict.fromkeys(n for n, _ in SEED_ACTORS))
    return '\n'.join([
        f'Actors: {found["actor_env"]} ({found["actors"][0]["environments"]}), one learner, agent '
        'steps/s. "if never idle" is the speed over the busy share of the learner\'s thread.',
        '',
        *report.table(('actors', 'environments', 'steps/s', 'law', 'learner busy', 'if never idle',
                'actors collect', 'MB/s in', 'MB/s out', 'lag', 'lost', 'cores', 'other cores'),
               (_actor_cells(row, law.predict(row['actors'])) for row in found['actors'])),
        '',
        f'{found["cores"]} cores, {found["rounds"]} rounds. Fastest were {best["actors"]} '
        f'actors. {_sentence(found["law"])}',
        '',
        'impala_horovod_gym, Pong, one learner with a GPU, actors of 4 cores each (computing):',
        '',
        *report.table(('actors', 'steps/s', 'law'), (
            (f'{actors}', f'{speed:,.0f}', f'{seed.predict(actors):,.0f}')
            for actors, speed in seeds)),
        '',
        _sentence(law_of(SEED_ACTORS))])


def _sampler_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    def beside(name: str, form: str) -> str:
        text = format(row[name], form)
        return text if row['seed'] is None else f'{text} ({row["seed"][name]:{form}})'

    return (f'{row["samplers"]}', row['environments'],
            *(beside(name, '.2f') for name in ('collection_s', 'learning_s', 'total_s')),
            f'{row["iteration_s"]:.2f}',
            *(beside(name, '.1f') for name in ('collection_speedup', 'total_speedup')),
            f'{row["iteration_speedup"]:.1f}', *common_cells(row))


def _actor_cells(row: Mapping[str, Any], law: float) -> tuple[str, ...]:
    return (f'{row["actors"]}', row['environments'], f'{row["steps_per_s"]:,.0f}', f'{law:,.0f}',
            f'{row["learner_busy"]:.0%}', f'{row["steps_per_s_busy"]:,.0f}',
            f'{row["actors_collecting"]:.0%}', f'{row["wire_in_mb_per_s"]:.0f}',
            f'{row["wire_out_mb_per_s"]:.0f}', *common_cells(row))


def common_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of :func:`common`: lag, lost, cores, other cores."""
    return (f'{row["policy_lag"]:.1f}', f'{row["trajectories_lost"]}', f'{row["cores"]:.2f}',
            f'{row["foreign_cores"]:.2f}')


def _sentence(law: Mapping[str, Any]) -> str:
    """Return the law as a sentence."""
    if not law['reached']:
        return (f'The law: an actor delivers {law["per_actor"]:,.0f} agent steps/s; '
                f'{law["most"]:.0f} actors do not fill the learner.')
    if not law['begun']:
        return (f'The law: the learner takes in {law["limit"]:,.0f} agent steps/s at most; '
                f'{law["fewest"]:.0f} actors fill it already.')
    text = (f'The law: an actor delivers {law["per_actor"]:,.0f} agent steps/s, the learner takes '
            f'in {law["limit"]:,.0f} at most, the knee is at {law["knee"]:.1f} actors, '
            f'{_FULL:.0%} are reached with {law["actors_for_90"]:.1f} (p = '
            f'{law["sharpness"]:.1f}, off by {law["error"]:.1%}).')
    if law['left_out'] is None:
        return text
    left = law['left_out']
    return (f'{text} From the fewer actors alone, it foretells {left["predicted"]:,.0f} for '
            f'{left["actors"]:.0f}; {left["measured"]:,.0f} were measured.')

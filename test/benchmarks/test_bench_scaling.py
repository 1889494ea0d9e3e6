"""bench_scaling: figures, tables, and errors."""

import contextlib

import pytest

from benchmarks import bench_scaling, graph
from benchmarks.scaling import tables


def run(speed, learn=0.25, step=0.5):
    """Return what one run of a graph with two actors found."""
    def acting(share):
        return {'acting': {'step': share, 'infer': 0.125, 'receive': 0.125, 'wait': 0.75 - share}}

    return {'steps_per_s': speed, 'time_shares': {
                'learner': {'training': {'learn': learn, 'decode': 0.125, 'other': 0.125,
                                         'wait': 0.75 - learn}, 'callbacks': {'wait': 1.0}},
                'actor_0': acting(step), 'actor_1': acting(step - 0.25)},
            'summary': {'agent_steps': 500}}


def test_iteration_is_split_into_collecting_and_learning():
    row = tables.sampler_row(2, [run(100.0), run(200.0), run(400.0)], 1000)
    # Actors step and infer 0.625 and 0.375 of 5 s; the learner decodes and learns 0.375 of them.
    assert (row['iteration_s'], row['collection_s'], row['learning_s']) == (5.0, 2.5, 1.875)
    assert row['total_s'] == 4.375
    assert row['seed'] == pytest.approx(
        {'collection_s': 7.38, 'learning_s': 2.46, 'total_s': 9.84})
    rows = tables.with_speedups([tables.sampler_row(n, [run(speed)], 1000)
                                for n, speed in ((1, 100.0), (3, 250.0), (20, 800.0))])
    assert [row['speedup'] for row in rows] == pytest.approx([1.0, 2.5, 8.0])
    assert rows[2]['seed']['speedup'] == pytest.approx(0.268 / 0.050)


def group_run(speed, *learn, updates=5):
    """Return what one run of a graph found, with a learner for each share of learning."""
    found = run(speed)
    shares = found['time_shares'].pop('learner')
    found['time_shares'] |= {f'learner_{rank}': {**shares, 'training': {
        'learn': share, 'wait': 0.75 - share, 'decode': 0.25}} for rank, share in enumerate(learn)}
    found['summary']['updates'] = updates
    return found


def test_learner_figures_are_means_over_all_learners():
    row = tables.learner_row(2, [
        group_run(200.0, 0.25, 0.75), group_run(400.0, 0.5, 0.625, updates=10)], 3)
    # 500 steps in five updates: a hundred each; in ten: fifty. So two and eight updates a second.
    assert (row['learners'], row['actors']) == (2, 6)
    assert (row['steps_per_s'], row['learner_waits']) == (300.0, 0.21875)
    # A learner is at it for 0.5 of a second that has two, and 0.5625 of one that has eight.
    assert row['update_s'] == (0.25 + 0.0703125) / 2
    rows = tables.with_efficiencies([
        tables.learner_row(n, [group_run(speed, *[0.5] * n)], 2)
        for n, speed in ((1, 400.0), (4, 1200.0))])
    assert (rows[1]['speedup'], rows[1]['efficiency']) == (3.0, 0.75)
    assert rows[1]['seed'] == pytest.approx(
        {'steps_per_s': 18800.0, 'speedup': 3.2414, 'efficiency': 0.81034}, rel=1e-4)


def test_tables_have_figures_of_all_cells():
    options = bench_scaling.arguments(
        ['--samplers', '1,3', '--actors', '1,2,4,8', '--learners', '1,2,9'])
    found = bench_scaling.result(options, {('samplers', n): [run(100.0 * n)] for n in (1, 3)} | {
        ('actors', n): [run(100.0 * n)] for n in (1, 2, 4, 8)} | {
        ('learners', n): [group_run(300.0 * n, *[0.5] * n)] for n in (1, 2, 9)}) | {'cores': 2}
    text = bench_scaling.markdown(found)
    assert '| 1 | 100.00 (13.98) |' in text
    assert '| 8 | 800 | 50% |' in text
    assert '| 2 | 4 | 600 | 2.00 (1.86) | 1.00 (0.93) | 25% | 0.083 |' in text
    assert '| 9 | 18 | 2,700 | 9.00 | 1.00 | 25% |' in text
    assert 'Learners: dummy/OBS28224-FPS50-v0 (asleep), 2 actors for each learner, 4 ' in text


def test_a_table_needs_the_run_that_others_are_compared_with(monkeypatch):
    def run_graph(plan, reports):
        if plan.num_actors == 1:
            raise RuntimeError('measurement: not\nwithin 1 s')
        return run(100.0 * plan.num_actors)

    monkeypatch.setattr(graph, 'run_graph', run_graph)
    monkeypatch.setattr(graph, 'listener', contextlib.nullcontext)
    for only, ends in (('actors', False), ('samplers', True)):
        options = bench_scaling.arguments(
            ['--samplers', '1,3', '--actors', '1,2,4', '--only', only, '--rounds', '1'])
        if ends:
            with pytest.raises(RuntimeError, match='^1 samplers: measurement: not within 1 s$'):
                bench_scaling.measure(options)
        else:
            runs, problems = bench_scaling.measure(options)
            assert problems == {'1 actors': 'measurement: not within 1 s'}
            rows = bench_scaling.result(options, runs)['actors']
            assert [row['actors'] for row in rows] == [2, 4]

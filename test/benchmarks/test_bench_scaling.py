"""bench_scaling: figures, tables, and errors."""

import contextlib

import pytest

from benchmarks import bench_scaling, graph


def run(speed):
    """Return what one run of a graph with two actors found."""
    def acting(share):
        return {'acting': {'step': share, 'infer': 0.125, 'receive': 0.125, 'wait': 0.75 - share}}

    return {'steps_per_s': speed, 'time_shares': {
                'learner': {'training': {'learn': 0.25, 'decode': 0.125, 'other': 0.125,
                                         'wait': 0.5}, 'callbacks': {'wait': 1.0}},
                'actor_0': acting(0.5), 'actor_1': acting(0.25)}}


def test_total_times_and_speed_ups_are_of_all_cells():
    options = bench_scaling.arguments(
        ['--samplers', '1,3', '--actors', '1,2,4,8', '--learners', '1,2,9'])
    found = bench_scaling.result(options, {
        ('samplers', 1): [run(1000.0), run(2000.0), run(4000.0)], ('samplers', 3): [run(5000.0)],
        **{('actors', n): [run(100.0 * n)] for n in (1, 2, 4, 8)},
        **{('learners', n): [run(300.0 * n)] for n in (1, 2, 9)}}) | {'cores': 2}
    # Actors step and infer 0.625 and 0.375 of 10 s; the learner decodes and learns 0.375 of them.
    assert [row['total_s'] for row in found['samplers']] == [8.75, 3.5]
    assert [row['speedup'] for row in found['learners']] == [1.0, 2.0, 9.0]
    assert '| 2 | 600 (10,800) | 2.00 (1.86) |' in bench_scaling.markdown(found)


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

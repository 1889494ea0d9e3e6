"""bench_actor_learner: ratios, break-even, and failures."""

import contextlib

import pytest

from benchmarks import bench_actor_learner as bench
from benchmarks import graph, links


def test_ratio_is_the_median_of_the_ratios_of_each_round():
    found = bench.cell([{'serial': one, 'actor': two} for one, two in (
        (100.0, 200.0), (400.0, 400.0), (200.0, 100.0))])
    assert found['actor'] == {'steps_per_s': 200.0, 'ratio': 1.0}


def test_break_even_is_interpolated_between_two_sizes():
    for points, size in (
            # Half way between logs: 2 and 1/2 are as far from 1: the geometric mean of the sizes.
            ([(1000, 2.0), (16000, 0.5)], 4000), ([(100, 2.0), (1000, 1.0)], None),
            ([(100, 0.99), (1000, 0.5)], 100), ([(10, 4.0), (160, 0.25), (1000, 1.5)], 40)):
        assert links.crossing(points) == (size and pytest.approx(size)), points


def test_failed_environment_is_left_out_with_its_reason(monkeypatch):
    done = []

    def run_one(plan, *_):
        name, mode = plan.settings['env_id'], plan.settings.get('inference', 'serial')
        done.append((name, mode))
        assert (plan.settings['time_limit'], plan.settings['learning_rate']) == ('100', '0.0')
        if name == 'b' and len(done) > 4:
            raise RuntimeError('it\nbroke')
        return {'steps_per_s': 1.0}

    for name in ('run_serial', 'run_graph'):
        monkeypatch.setattr(graph, name, run_one)
    monkeypatch.setattr(graph, 'listener', contextlib.nullcontext)
    options, _ = bench.arguments(['--env', 'CartPole-v1', '--inference', 'actor'])
    found, problems = bench.measure(options, ['a', 'b'])
    assert problems == {'b': 'it broke'}
    assert {name: len(rounds) for name, rounds in found.items()} == {'a': 3}
    # Each round begins with another mode, every second one with the last environment.
    assert done == [('a', 'serial'), ('a', 'actor'), ('b', 'serial'), ('b', 'actor'),
                    ('b', 'actor'), ('a', 'actor'), ('a', 'serial'), ('a', 'serial'),
                    ('a', 'actor')]

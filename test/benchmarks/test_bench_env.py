"""bench_env and bench_transport: figures, tables, back ends, and errors."""

import gymnasium
import pytest

from benchmarks import bench_env, env_measure, graph
from benchmarks import bench_transport as bench
from benchmarks.transport_peer import Cell


def test_speeds_are_medians_and_what_is_missing_or_broken_is_named():
    rows = [bench_env.row('CartPole-v1', {
                'async': [{'frames_per_s': speed} for speed in (100.0, 400.0, 1234.5)],
                'own': [{'frames_per_s': 50_000.0}]}, {'sync': 'it broke'}),
            bench_env.row('VizdoomDeathmatch', {}, {'all': 'not installed: pip install it'})]
    assert rows[0]['frames_per_s'] == {'async': 400.0, 'own': 50_000.0}
    lines = bench_env.readable({'rows': rows, 'rounds': 3, 'num_envs': 2}).splitlines()
    assert lines[-2:] == ['CartPole-v1: sync: it broke',
                          'VizdoomDeathmatch: all: not installed: pip install it']


def test_speed_is_measured_after_the_warm_up_and_a_slow_step_once():
    now = [0.0]

    def once():
        # Slow at first; every second call is a reset.
        now[0] += 1.25 if now[0] < 1.25 else 0.125
        return 4 if int(now[0] * 8) % 2 else 0

    assert env_measure.frames_per_s(once, 5.0, lambda: now[0], warm_up=0.25) == 2 / 0.125

    def slow():
        now[0] += 10.0
        return 5

    assert env_measure.frames_per_s(slow, 2.0, lambda: now[0]) == 0.5
    # Resets are no frames.
    env = gymnasium.make_vec('CartPole-v1', 3, max_episode_steps=2)
    step = env_measure.stepper(env)
    assert [step() for _ in range(7)] == [3, 3, 0, 3, 3, 0, 3]
    env.close()


def test_hanging_or_failing_measurement_is_ended_with_its_error(monkeypatch):
    for script, limit, error in (
            ('echo so >&2; echo it broke >&2; exit 3', 60.0, 'step: it broke'),
            ('exec sleep 600', 0.01, 'step: its end: not within 0.01 s')):
        monkeypatch.setattr(
            graph, 'module_command', lambda *_, script=script: ['sh', '-c', script])
        with pytest.raises(RuntimeError, match=f'^{error}$'):
            graph.run_module('module', 'step', limit=limit)


def sample(number, way, task, size, **found):
    cell = Cell(way, task, size, packets=10, window=4, limit=1.0, where='')
    return bench.sample('one host', number, cell, found)


def test_ratios_are_taken_within_a_round_and_losses_are_counted():
    size = 800_000
    # Each round's ratio is 0.5, 0.5, 0.1; that of the medians would be 0.4.
    samples = [sample(number, way, 'throughput', size, received=10, seconds=10 * size / 1e6 / rate)
               for number, pair in enumerate([(100, 50), (200, 100), (400, 40)])
               for way, rate in zip(('tcp', 'dds'), pair, strict=True)]
    samples.append(sample(0, 'dds', 'round_trip', 28_000, received=9, trips_ms=[0.2] * 9))
    samples.append(sample(0, 'dds', 'round_trip', 100, received=0, trips_ms=[]))
    tcp, dds, few, none = bench.rows(samples)
    assert (tcp['way'], tcp['of_tcp'], tcp['rounds']) == ('tcp', 1.0, 3)
    assert dds['MBps'] == pytest.approx(50.0)
    assert dds['of_tcp'] == pytest.approx(0.5)
    assert (dds['asked'], dds['received']) == (30, 30)
    assert (few['lost'], none['lost'], none['p50_ms']) == (1, 10, None)

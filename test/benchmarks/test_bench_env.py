"""bench_env: figures, table, back ends, and errors."""

import gymnasium
import pytest

from benchmarks import bench_env, env_measure, graph

IMAGE = [{'name': '', 'shape': [2, 3], 'dtype': 'uint8', 'elements': 6, 'bytes': 6}]


def one(speed, memory=1e6):
    return {'frames_per_s': speed, 'memory_bytes': memory, 'memory_first_bytes': 5e6,
            'observation': IMAGE}


def test_medians_and_the_best_back_end():
    found = bench_env.row('CartPole-v1', {
        'single': [one(100.0), one(400.0), one(200.0)],
        'sync': [one(900.0), one(100.0), one(110.0)],
        'own': [one(300.0), one(500.0), one(400.0)]}, {'async': 'it broke'})
    assert found['best'] == 'own'
    assert found['single'] == {
        'frames_per_s': 200.0, 'frames_per_s_min': 100.0, 'frames_per_s_max': 400.0,
        'memory_bytes': 1e6}
    assert found['vectorised']['async'] == {'problem': 'it broke'}
    assert found['best_over_single'] == 2.0
    assert found['single_over_seed'] == pytest.approx(200 / 134426)
    assert found['best_over_seed'] == pytest.approx(400 / 134426)
    assert found['observation_bytes'] == 6


def test_table_shows_missing_and_broken_environments():
    row = bench_env.row
    rows = [row('CartPole-v1', {'single': [one(1234.5, 8700.0)], 'own': [one(50_000.0)]},
                {'sync': 'it broke'}),
            row('VizdoomDeathmatch', {}, {'single': 'not installed: pip install it'})]
    lines = bench_env.readable({'rows': rows, 'rounds': 1, 'num_envs': 2}).splitlines()
    assert len({line.count('|') for line in lines[:4]}) == 1
    assert ('| CartPole-v1 | uint8 2x3 | 6 | 5 | 0.0087 | 1,234 | failed |  | 50,000 |  '
            '| 40.50 | 134,426 | 0.56 | 0.01 | 0.37 |') in lines
    assert lines[3].startswith('| VizdoomDeathmatch | not installed: pip install it |')
    assert lines[-2:] == ['CartPole-v1: sync: it broke',
                          'VizdoomDeathmatch: not installed: pip install it']


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

"""Other systems and third-party agents: installation, reports, commands, tables."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from benchmarks import bench_peers, bench_third_party
from benchmarks.peers import peers
from benchmarks.third_party.random_return import random_return
from vdl_ros.envs.env_config import EnvConfig


def test_a_training_is_timed_until_its_mean_return(monkeypatch):
    # Its mean return is that of 100 episodes from the second update on.
    lines = ['A line that is no report', '[1]', '{"wall_s": 2}', *(
        json.dumps({'wall_s': wall, 'agent_steps': 640 * wall, 'mean_return': mean})
        for wall, mean in ((1, None), (2, 470.0), (3, 480.0), (4, 500.0))), '{"wall_s": 5, "age']
    now = []

    def sleep(seconds):
        now[0] += 1.0

    monkeypatch.setattr(peers, 'time', SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    for case, ends, goal, expected in (
            ('ends', True, 475.0, (3.0, 1920.0)), ('goes on', False, 475.0, (3.0, 1920.0)),
            ('does not reach it', True, 501.0, (None, None)),
            ('takes too long', False, 501.0, (None, None))):
        now[:] = [0.0]

        @contextlib.contextmanager
        def launched(*words, log, may_end, ends=ends):
            log.write_text('')
            yield SimpleNamespace(poll=lambda: 0 if ends and now[0] > 5 else None)

        def read(text):
            return [row for row in peers.rows('\n'.join(lines)) if row.wall_s <= now[0]]

        monkeypatch.setattr(peers, 'launched', launched)
        assert peers.until_return(['train'], read, mean_return=goal, limit=60.0) == expected, case


def test_the_tables_have_each_seed_medians_and_how_much_faster_the_graph_is():
    text = bench_peers.markdown({
        'env': 'CartPole-v1', 'rounds': 2, 'limit': 600.0, 'cores': 2,
        'seconds_until_solved': {'graph': [14.2, 15.0], 'cleanrl': [90.0, None]},
        'steps_until_solved': {'graph': [160000.0, 170000.0], 'cleanrl': [300000.0, None]}})
    assert '| CleanRL fe8d8a0, PPO | 90, none | 300,000, none |' in text
    text = bench_peers.markdown({
        'env': 'ALE/Pong-v5', 'rounds': 3, 'seconds': 40.0, 'cores': 2,
        'steps_per_s': {'graph': [1000.0, 900.0, 1100.0],
                        'sample_factory': [500.0, 400.0, 510.0]},
        'memory_mb': {'graph': [1500.0, 1600.0, 1550.0], 'sample_factory': [900.0] * 3}})
    assert '| Sample Factory 2.1.1, APPO | 500 (400 to 510) | 2.0 | 900 |' in text


def test_a_command_is_as_it_is_typed_and_the_last_line_of_the_learner_is_the_reason():
    entry = {'install': ['a'], 'env_modules': 'a.b', 'env_id': 'A-v0', 'variables': {'B': '1'},
             'settings': {'env_kwargs': '{"c": 1}', 'normalize_observations': True}}
    assert bench_third_party.command(entry) == (
        'B=1 ros2 launch vdl_ros train.launch.py env_modules:=a.b env_id:=A-v0 '
        """env_kwargs:='{"c": 1}' normalize_observations:=true""")
    log = '[actor-2] learner: no\n[learner-1] learner: env_id: no\n[ERROR] [launch]: ended\n'
    assert bench_third_party.reason(log) == 'env_id: no'
    assert bench_third_party.reason('[actor-2] [ERROR] it broke\n[ERROR] [launch]: ended') == (
        '[actor-2] [ERROR] it broke')
    assert bench_third_party.reason('[INFO] [launch]: ended') == ''


def test_random_returns_are_of_as_many_episodes_of_each_copy():
    mean, episodes = random_return(EnvConfig(env_id='CartPole-v1'), 60.0)
    assert episodes == 100
    # 1,000 episodes have 22.
    assert mean == pytest.approx(22.0, abs=6.0)
    assert random_return(EnvConfig(env_id='CartPole-v1'), 0.0) == (None, 0)

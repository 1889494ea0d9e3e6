"""bench_peers: reports of peers, their installation, and the tables."""

import contextlib
import json
from types import SimpleNamespace

from benchmarks import bench_peers
from benchmarks.peers import peers


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
    assert '| vdl_ros, impala, two actors | 14, 15 | 160,000, 170,000 |' in text
    assert '| CleanRL fe8d8a0, PPO | 90, none | 300,000, none |' in text
    text = bench_peers.markdown({
        'env': 'ALE/Pong-v5', 'rounds': 3, 'seconds': 40.0, 'cores': 2,
        'steps_per_s': {'graph': [1000.0, 900.0, 1100.0],
                        'sample_factory': [500.0, 400.0, 510.0]},
        'memory_mb': {'graph': [1500.0, 1600.0, 1550.0], 'sample_factory': [900.0] * 3}})
    assert '| vdl_ros, impala, two actors | 1,000 (900 to 1,100) | 1.0 | 1,600 |' in text
    assert '| Sample Factory 2.1.1, APPO | 500 (400 to 510) | 2.0 | 900 |' in text

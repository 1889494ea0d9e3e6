"""bench_exchange: a short run of real learners, and its table."""

import json
import subprocess

from benchmarks import bench_exchange


def test_two_learners_exchange_in_a_short_run(tmp_path):
    done = subprocess.run(
        ['ros2', 'run', 'vdl_ros', 'bench_exchange', '--learners', '2', '--periods', '1',
         '--batches', '1', '--json'], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [row['kilobytes'] for row in found['rows']] == [10, 300, 2500, 9200]
    # A learner sleeps at least as long as its batches take.
    assert all(0 < row['speedups']['1'] <= 2 for row in found['rows'])
    head, _, first, *_ = bench_exchange.markdown(found).splitlines()
    assert head == '| a sum, kB | a batch, s | every 1: speed-up | VDL, 6 machines |'
    assert first.startswith('| 10 | 0.07 | ')
    assert first.endswith(' | 5.93 |')

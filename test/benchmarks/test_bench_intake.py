"""bench_intake: real messages of a few actors, and the table."""

import pytest

from benchmarks import bench_intake


def test_every_trajectory_of_every_actor_is_taken_in():
    found = bench_intake.measure(bench_intake.arguments(
        ['--actors', '1,70', '--seconds', '0.1']))
    assert [row['known'] for row in found['rows']] == [1, 70]
    assert all(row['lost'] == 0 < row['trajectories_per_s'] for row in found['rows'])
    assert all(row['steps_per_s'] == pytest.approx(320 * row['trajectories_per_s'])
               for row in found['rows'])
    head, _, one, *_ = bench_intake.markdown(found).splitlines()
    assert head.startswith('| actors | trajectories/s | agent steps/s |')
    assert one.startswith('| 1 | ')

"""The soak runs; what grows in it is named, what only varies is not."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import soak

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def test_what_grows_is_named_and_what_only_varies_is_not():
    chance = random.Random(1)

    def series(**growth):
        """Return an hour of values about 100, each with its growth per minute."""
        found = soak.Series()
        for sample in range(360):
            found.add(sample / 6, **{
                name: 100 + chance.uniform(-10, 10) + slope * sample / 6
                for name, slope in growth.items()})
        return found

    flat = {'fds': 0, 'threads': 0}
    assert soak.judge({'actor': series(rss_mb=0, **flat)}, series(files=0, mb=0)) == []
    found = soak.judge({'learner': series(rss_mb=1.2, **flat),
                        'viewer': series(rss_mb=0.8, fds=1, threads=1)}, series(files=1, mb=1))
    assert [line.partition(' by ')[0] for line in found] == [
        'learner: memory grows', 'viewer: fds grew', 'viewer: threads grew',
        '/dev/shm: files grew', '/dev/shm: mb grew']


@pytest.mark.process
def test_the_soak_runs_a_training_and_an_arm(tmp_path):
    path = os.pathsep.join(
        (str(ROOT), str(ROOT / 'test' / 'arm'), os.environ.get('PYTHONPATH', '')))
    done = subprocess.run(
        [sys.executable, str(ROOT / 'test' / 'soak.py'), '--minutes', '0.7', '--json',
         str(tmp_path / 'soak.json')],
        env=os.environ | {'PYTHONPATH': path}, capture_output=True, text=True, check=False)
    assert (tmp_path / 'soak.json').is_file(), done.stderr
    found = json.loads((tmp_path / 'soak.json').read_text())
    # So soon after the start something may still grow.
    assert [line for line in found['failures'] if 'grow' not in line and 'grew' not in line] == []
    assert found['agent_steps'] > 0 < found['trajectories']
    assert {'learner', 'actor', 'actor 2', 'sim_arm', 'viewer', 'camera'} <= {
        *found['processes']}, done.stderr

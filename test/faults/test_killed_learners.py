"""Two learners of which one is killed or stopped in a phase: both have the same weights again."""

import os
import signal
from collections import defaultdict
from pathlib import Path

import psutil
import pytest

HOOK = Path(__file__).with_name('learner_hook')
FAULTS = [(how, phase) for how in ('KILL', 'STOP')
          for phase in ('joining', 'sharing the state', 'collecting', 'updating')]
VERSIONS = 5  # versions that both have to make after the rejoin
PATIENCE_S = 240.0  # safety bound, s


def digests(folder):
    """Return the digest of the weights by version, of each process: {(rank, pid): {...}}."""
    found = defaultdict(dict)
    if (folder / 'digests.txt').exists():
        for line in (folder / 'digests.txt').read_text().splitlines():
            words = line.split()
            if len(words) == 4:
                pid, rank, version, digest = words
                found[int(rank), int(pid)][int(version)] = digest
    return found


@pytest.mark.fault_row(
    'two learners: KILL or STOP one in each phase', 'same weights after the rejoin',
    reduced=2, full=len(FAULTS))
def test_learners_have_the_same_weights_after_a_fault(trials, launch, tmp_path):
    def fail(index, rng):
        how, phase = FAULTS[index]
        folder = tmp_path / f'{index}'
        folder.mkdir()
        env = os.environ | {
            'PYTHONPATH': f'{HOOK}:{os.environ.get("PYTHONPATH", "")}',
            'FAULT': f'{how},{phase},{index % 2},{folder}'}
        train = launch(
            'ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={folder / "run"}',
            'env_id:=CartPole-v1',
            'num_learners:=2', 'num_actors:=2', 'group_timeout:=30.0', 'checkpoint_period:=1.0',
            'total_steps:=100000000', 'stop_at_return:=1e9', env=env)
        try:
            train.wait_for((folder / 'failed').exists, f'{how} while {phase}', PATIENCE_S)
            before = set(digests(folder))
            if how == 'STOP':
                stopped, = train.wait_for(lambda: [
                    each for each in train.nodes('learner')
                    if each.status() == psutil.STATUS_STOPPED], 'the stop', PATIENCE_S)
                # The other one gives it up.
                other, = (each for each in train.nodes('learner') if each.pid != stopped.pid)
                train.wait_for(lambda: not other.is_running() or other not in train.nodes(
                    'learner'), 'the end of the other', PATIENCE_S)
                stopped.send_signal(signal.SIGCONT)

            def rejoined():
                new = {rank: found for (rank, pid), found in digests(folder).items()
                       if (rank, pid) not in before}
                common = set(new.get(0, {})) & set(new.get(1, {}))
                return len(common) >= VERSIONS and [
                    (version, new[0][version], new[1][version]) for version in sorted(common)]

            for version, first, second in train.wait_for(rejoined, 'the new group', PATIENCE_S):
                assert first == second, f'version {version}: other weights'
            train.interrupt()
            assert train.wait(PATIENCE_S) == 0, train.output[-2000:]
        finally:
            train.end()

    trials.run(fail)

"""A training whose nodes are killed, stopped and continued: it goes on, and nothing grows."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from stall_detector import StallDetector

ACTORS, CREDIT = 3, 4
#: From one fault to the next, and how long a node stays stopped, s.
PERIOD_S = 6.0
#: Without stalls of the machine, s; MB/min.
GROWS_WITHIN_S, LARGEST_SLOPE = 15.0, 1.0
#: Samples of less time, and of the time after the start, say nothing about MB/min, s.
SHORTEST_S, STARTS_S = 120.0, 20.0
#: Safety bound, s.
PATIENCE_S = 240.0
CYCLE = (('KILL', 'actor'), ('STOP', 'learner'), ('STOP', 'actor'), ('KILL', 'actor'),
         ('STOP', 'actor'), ('STOP', 'actor'))
# The learner is killed last: until then the memory of one process is measured.
FAULTS = [CYCLE[index % len(CYCLE)] for index in range(24)] + [
    ('STOP', 'learner'), ('KILL', 'learner'), ('KILL', 'actor')] * 2


def memory_mb(process):
    """Return the heap and stacks of a process, MB: without files and shared memory."""
    lines = Path(f'/proc/{process.pid}/status').read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith('RssAnon:')) / 1024


class Training:
    """A launch of a learner and three actors; it starts at the first fault."""

    def __init__(self, launch, run):
        self._launch, self._run = launch, run
        self._train = self._learner = None
        self._memory, self._sampled_at, self._lost = [], 0.0, 0
        self.killed = {'actor': 0, 'learner': 0}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._train is not None:
            self._stalls.__exit__()

    def _start(self):
        self._train = self._launch(
            'ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={self._run}',
            'env_id:=CartPole-v1',
            f'num_actors:={ACTORS}', f'max_policy_lag:={CREDIT}', 'checkpoint_period:=1.0',
            'total_steps:=100000000', 'stop_at_return:=1e9')
        self._stalls = StallDetector().__enter__()
        self._train.wait_for(lambda: self._run.steps > 10_000, 'progress', PATIENCE_S)
        self._learner, = self._train.nodes('learner')
        self._started_at = time.monotonic()

    def fail(self, how, name, which):
        """
        Kill a node, or stop and continue it.

        Returns:
            From then until the steps grow, without stalls, s.
        """
        if self._train is None:
            self._start()
        self._wait(self._all_run, 'every node')
        nodes = self._train.nodes(name)
        node = nodes[which % len(nodes)]
        node.send_signal(getattr(signal, f'SIG{how}'))
        began = time.monotonic()
        if how == 'KILL':
            self.killed[name] += 1
            node.wait(PATIENCE_S)
        grown_at = None if name == 'learner' else self._grown_at()
        if how == 'STOP':
            self._wait(lambda: time.monotonic() > began + PERIOD_S, 'the end of the stop')
            node.send_signal(signal.SIGCONT)
            began = began if grown_at else time.monotonic()
        grown_at = grown_at or self._grown_at()
        self._wait(lambda: time.monotonic() > began + PERIOD_S, 'the time of the next fault')
        return self._stalls.took(began, grown_at)

    def _all_run(self):
        """Return whether every node runs, and every actor has begun to act."""
        acting = self._train.output.count(' acts in ')
        return acting >= ACTORS + self.killed['actor'] and [
            len(self._train.nodes(each)) for each in ('learner', 'actor')] == [1, ACTORS]

    def _grown_at(self):
        """Return when steps were learned from; a learner that starts again has fewer at first."""
        lowest = self._run.steps

        def grown():
            nonlocal lowest
            steps = self._run.steps
            lowest = min(steps or lowest, lowest)
            return steps > lowest

        self._wait(grown, 'steps')
        return time.monotonic()

    def _wait(self, condition, what):
        def sampled():
            self._sample()
            return condition()

        self._train.wait_for(sampled, what, PATIENCE_S)

    def _sample(self):
        now = time.monotonic()
        if (not self.killed['learner'] and now > self._started_at + STARTS_S
                and now > self._sampled_at + 0.5):
            self._sampled_at = now
            self._memory.append((now, memory_mb(self._learner)))

    def new_losses(self):
        """Return the trajectories that were lost since the call before."""
        rows = self._run.progress
        lost = int(rows[-1]['trajectories_lost']) if rows else 0
        self._lost, before = lost, self._lost
        return lost - before

    def slope(self):
        """Return the slope of the first learner's memory, MB/min; None if it lived too briefly."""
        times, memory = np.array(self._memory).reshape(-1, 2).T
        if not len(times) or times[-1] - times[0] < SHORTEST_S:
            return None
        return float(np.polyfit(times / 60, memory, 1)[0])

    def finish(self):
        """End the training as a user does, when all have learned again; return its summary."""
        self._wait(self._all_run, 'every node')
        steps = self._run.steps
        self._wait(lambda: self._run.steps > steps + 20_000, 'progress of all')
        self._train.interrupt()
        assert self._train.wait() == 0, self._train.output[-3000:]
        assert self._train.family() == []
        assert 'Traceback' not in self._train.output
        return self._run.summary


@pytest.mark.fault_row(
    'live graph, 1 learner and 3 actors: KILL, STOP, CONT every 6 s',
    'steps grow again within 15 s, no trajectory lost, memory slope under 1 MB/min',
    reduced=6, full=len(FAULTS))
def test_training_goes_on_after_each_fault(trials, launch, run):
    with Training(launch, run) as training:
        def fail(index, rng):
            how, name = FAULTS[index]
            recovery = training.fail(how, name, index // 2)
            figures = {'steps grow after (s)': recovery}
            assert training.new_losses() <= 0, f'{how} of {name}: trajectories lost'
            if index == trials.indices[-1]:
                found = training.finish()
                assert found['trajectories_rejected'] == 0
                assert found['learner_restarts'] == training.killed['learner']
                assert found['actor_restarts'] == training.killed['actor']
                if (slope := training.slope()) is not None:
                    figures['memory (MB/min)'] = slope
                    assert slope < LARGEST_SLOPE, f'{slope:.2f} MB/min'
            assert recovery < GROWS_WITHIN_S, f'{how} of {name}: {recovery:.1f} s'
            return figures

        trials.run(fail)

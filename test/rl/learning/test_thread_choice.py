"""The trial that chooses the learner's threads: the fastest number, the smallest of equals."""

import pytest

from vdl_ros.rl.learning.thread_choice import RememberedThreads, ThreadChoice, candidates


class Training:
    """A training whose optimizer steps take the time that the number of threads gives."""

    def __init__(self, cores, step, *, steps=1, wait=0.0, num_actors=2):
        self.now, self.threads, self.version = 0.0, 1, 0
        self._step, self._steps, self._wait, self.used = step, steps, wait, []
        self.choice = ThreadChoice(
            cores, num_actors, set_threads=self._set, clock=lambda: self.now)
        #: Seconds of each number until the choice.
        self.seconds = dict.fromkeys(candidates(cores), 0.0)

    def _set(self, threads):
        self.threads = threads
        self.used.append(threads)

    def until_chosen(self, most=1e6):
        """Update, with 640 agent steps each, until a number is chosen; return the line."""
        line = ''
        while not line and self.now < most:
            self.version += 1
            self.now += self._wait
            for _ in range(self._steps):
                seconds = self._step(self.threads, self.now)
                self.now += seconds
                self.seconds[self.threads] += seconds
                self.choice.after_step()
            # An iteration without an update must not count.
            for _ in range(2):
                line = line or self.choice.after_update(self.version, self.version * 640)
        return line

    def lost(self, chosen):
        """Return the seconds that the numbers that were not chosen cost."""
        best = self._step(chosen, self.now)
        return sum(seconds * (1 - best / self._step(threads, self.now))
                   for threads, seconds in self.seconds.items())


@pytest.mark.parametrize(('cores', 'seconds', 'expected', 'steps'), [
    (2, {1: 0.6, 2: 0.4}, 2, 40),
    (2, {1: 0.35, 2: 0.42}, 1, 1),
    (4, {1: 0.5, 2: 0.49, 4: 0.49}, 1, 1),  # not worth a core
    (4, {1: 0.5, 2: 0.3, 4: 0.4}, 2, 40),
    (2, {1: 7.0, 2: 4.0}, 2, 1),  # of slow updates a measurement has only one
    (2, {1: 7.0, 2: 4.0}, 2, 40),
    (2, {1: 0.001, 2: 0.002}, 1, 40)])
def test_the_smallest_number_that_is_fastest_is_kept(cores, seconds, expected, steps):
    # As many optimizer steps as make an update of this time.
    training = Training(cores, lambda threads, _: seconds[threads] / steps, steps=steps)
    assert training.choice.announcement().endswith(', '.join(map(str, candidates(cores))))
    line = training.until_chosen()
    assert line.startswith(f'learner_threads: chosen {expected} (')
    in_pieces = 'optimizer' in line
    assert in_pieces == (steps > 1 and seconds[1] > 2)
    assert f'{expected}: {(steps if in_pieces else 640) / seconds[expected]:,.3g}' in line
    assert training.choice.threads == training.threads == expected
    assert not training.choice.after_update(training.version + 1, 10**9)
    assert training.used[-1] == expected or not training.used


@pytest.mark.parametrize(('cores', 'steps', 'seconds'), [
    (2, 40, {1: 0.25, 2: 0.9}),  # long updates, of which two threads make much longer ones
    (2, 256, {1: 0.085, 2: 0.3}),
    (2, 1, {1: 0.2, 2: 0.72}),
    (2, 1, {1: 5.0, 2: 18.0}),
    (8, 4, {1: 0.1, 2: 0.08, 4: 0.2, 8: 0.4})])
def test_a_trial_costs_little_of_a_run_of_five_minutes(cores, steps, seconds):
    training = Training(cores, lambda threads, _: seconds[threads], steps=steps, wait=0.5)
    line = training.until_chosen(most=300.0)
    best = min(seconds, key=seconds.get)
    assert training.lost(best) <= 0.02 * 300.0
    if steps > 1:
        # Where an update is no longer than the trial may cost.
        assert f'chosen {best} ' in line
        assert training.now < 60.0


def test_a_disturbance_and_the_first_updates_do_not_decide():
    def step(threads, now):
        # Slow at first; something else takes the cores for a while.
        return 3.0 if now < 3 else 2.0 if 14 <= now < 18 else 0.4 / threads

    assert Training(2, step).until_chosen().startswith('learner_threads: chosen 2 (')


def test_a_result_is_remembered_for_a_machine_and_settings(tmp_path):
    path = tmp_path / 'of' / 'threads.json'
    mine, other = {'network': 'impala', 'batch_size': 2}, {'network': 'impala', 'batch_size': 4}
    assert RememberedThreads(path, 4, mine).get() == 0
    RememberedThreads(path, 4, mine).put(2)
    RememberedThreads(path, 4, other).put(4)
    assert RememberedThreads(path, 4, mine).get() == 2
    assert RememberedThreads(path, 8, mine).get() == 0, 'another number of cores'
    path.write_text(path.read_text().replace(': 2', ': 5'))
    assert RememberedThreads(path, 4, mine).get() == 0, 'more threads than cores'
    for number in range(220):
        RememberedThreads(path, 4, {'batch_size': number}).put(1)
    assert len(path.read_text()) < 30_000
    path.write_text('{"')
    assert RememberedThreads(path, 4, mine).get() == 0
    RememberedThreads(path / 'below', 4, mine).put(2)

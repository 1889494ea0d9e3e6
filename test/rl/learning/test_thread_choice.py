"""The trial that chooses the learner's threads: the fastest number, the smallest of equals."""

from vdl_ros.rl.device import ThreadChoice, candidates


class Training:
    """A training whose updates take the time that the number of threads gives, on its clock."""

    def __init__(self, cores, seconds):
        self.now, self.threads, self.version = 0.0, 1, 0
        self._seconds, self.used = seconds, []
        self.choice = ThreadChoice(cores, set_threads=self._set, clock=lambda: self.now)

    def _set(self, threads):
        self.threads = threads
        self.used.append(threads)

    def until_chosen(self):
        """Update, with 640 steps each, until a number is chosen; return the line."""
        while self.version < 100000:
            self.version += 1
            self.now += self._seconds(self.threads, self.version)
            # An iteration without an update must not count.
            for _ in range(2):
                if line := self.choice.update(self.version, self.version * 640):
                    return line
        raise AssertionError('no number was chosen')


def test_the_smallest_number_that_is_fastest_is_kept():
    for cores, seconds, expected in (
            (2, {1: 0.6, 2: 0.4}, 2),
            (2, {1: 0.35, 2: 0.42}, 1),
            # Not worth a core.
            (4, {1: 0.5, 2: 0.49, 4: 0.49}, 1),
            (4, {1: 0.5, 2: 0.3, 4: 0.4}, 2),
            # Slow updates, of which a trial has only a few.
            (2, {1: 7.0, 2: 4.0}, 2),
            (2, {1: 0.001, 2: 0.002}, 1)):
        training = Training(cores, lambda threads, _, seconds=seconds: seconds[threads])
        assert training.choice.announcement().endswith(', '.join(map(str, candidates(cores))))
        line = training.until_chosen()
        assert line.startswith(f'learner_threads: chosen {expected} ('), seconds
        assert f'{expected}: {640 / seconds[expected]:,.0f}' in line
        assert training.choice.threads == training.threads == expected
        # Each number was tried in turn, five times; then nothing changes any more.
        assert training.used == [*candidates(cores) * 5, expected], seconds
        assert not training.choice.update(training.version + 1, 10**9)
        assert training.used[-1] == expected


def test_a_disturbance_and_the_first_updates_do_not_decide():
    def seconds(threads, version):
        # Slow at first; something else takes the cores for a while during a trial of two threads.
        return 3.0 if version < 3 else 2.0 if 14 <= version < 18 else 0.4 / threads

    training = Training(2, seconds)
    assert training.until_chosen().startswith('learner_threads: chosen 2 (')

"""The training loop: which trajectories an update takes; synchronous actors, stale ones."""

import queue

import pytest

from vdl_ros.rl.acting.flow_control import Credit


class Graph:
    """A run and its actors, who act whenever what was published allows it."""

    def __init__(self, start, random_unroll, actors=1, **config):
        self._draw = random_unroll
        # By actor: the version of the policy that it acts with.
        self.versions = dict.fromkeys(range(actors), 0)
        # Actors that load no policies, those that send nothing, and numbers that do not arrive.
        self.slow, self.silent, self.dropped = set(), set(), set()
        self.batches, self._channel, self._now = [], [], 0.0
        self.run = start(inbox=lambda flow_stats: self, clock=lambda: self._now,
                         **{'total_steps': 10**6} | config)
        self.learner, self.flow_stats = self.run.learner, self.run.flow_stats
        self.credits = {number: Credit(self.run.config.credit) for number in range(actors)}
        self._publish, self.run.publish = self.run.publish, self.publish
        learn = self.learner.algorithm.update

        def update(batch):
            self.batches.append([(each.start_id, each.sequence) for each in batch.sources])
            return learn(batch)

        self.learner.algorithm.update = update

    def publish(self):
        self._publish()
        credits = dict(self.flow_stats.credits())
        for number, credit in self.credits.items():
            credit.on_policy('learner', credits.get(number, ('', None))[1])
            if number not in self.slow:
                self.versions[number] = self.learner.version

    def get(self, timeout):
        """Return the next trajectory: of the actors in turn, of each as many as it may send."""
        if not self._channel:
            for number, credit in self.credits.items():
                while number not in self.silent and credit.available:
                    sequence = credit.spend()
                    if sequence not in self.dropped:
                        self._channel.append((number, sequence, self.versions[number]))
        if not self._channel:
            self._now += timeout
            if not self.silent:
                self.run.stop.set()  # all wait: so does the trainer, for ever
            raise queue.Empty
        number, sequence, version = self._channel.pop(0)
        self.flow_stats.arrive(f'actor{number}', number, sequence)
        return self._draw(sequence, batch=1, sequence=sequence, start_id=number,
                          actor_id=f'actor{number}', version=version)

    def stop_at_stale(self, count):
        """Stop the run once so many trajectories were too old, or too many, to learn from."""
        get = self.get

        def stop_then(timeout):
            if self.flow_stats.stale == count:
                self.run.stop.set()
                raise queue.Empty
            return get(timeout)

        self.get = stop_then


@pytest.fixture
def graph(start, random_unroll):
    def make(**settings):
        return Graph(start, random_unroll, **settings)
    return make


def test_asynchronous_trainer_learns_from_any_two_trajectories(graph):
    each = graph(actors=3, num_actors=3, total_steps=200)
    assert each.run() == 'total_steps'
    assert {len(batch) for batch in each.batches} == {2}
    assert any(len({number for number, _ in batch}) == 1 for batch in each.batches)


def test_synchronous_update_takes_batch_size_of_every_actor(graph):
    each = graph(actors=3, num_actors=3, synchronous=True, batch_size=2, total_steps=200)
    assert each.run() == 'total_steps'
    assert len(each.batches) > 3
    for update, batch in enumerate(each.batches):
        expected = [(number, 2 * update + i) for number in range(3) for i in range(2)]
        assert sorted(batch) == expected
    # So everything was acted with the very policy that learned from it.
    assert each.flow_stats.lag_max == 0
    assert each.flow_stats.lag_count == 3 * 2 * len(each.batches)


def test_a_synchronous_update_takes_no_more_of_an_actor_that_sends_more(graph):
    each = graph(actors=2, num_actors=2, synchronous=True, batch_size=2, total_steps=200)
    # It gave two up that the learner has, or its process started again.
    each.credits[0] = Credit(4)
    assert each.run() == 'total_steps'
    assert len(each.batches) > 3
    for update, batch in enumerate(each.batches):
        assert sorted(batch) == [(number, 2 * update + i) for number in range(2) for i in range(2)]


def test_a_synchronous_update_keeps_no_flood_of_an_actor_while_it_waits_for_another(graph):
    each = graph(actors=2, num_actors=2, synchronous=True, batch_size=2)
    each.credits[0], each.silent = Credit(60), {1}
    each.stop_at_stale(50)
    assert each.run() == 'interrupted'
    assert each.flow_stats.actor_records[0].waiting == 6, '2 of the batch, 4 for later'


def test_synchronous_trainer_waits_for_all_actors(graph):
    each = graph(actors=2, num_actors=3, synchronous=True)
    assert each.run() == 'interrupted'
    assert each.batches == []
    assert each.learner.version == 0


def test_a_synchronous_run_goes_on_without_an_actor_until_it_is_back(graph):
    each = graph(actors=2, num_actors=2, synchronous=True, total_steps=300)
    learn = each.run.trainer._learn

    def go_away(batch):
        each.silent = {0} if len(each.batches) in (1, 2) else set()
        return learn(batch)

    each.run.trainer._learn = go_away
    assert each.run() == 'total_steps'
    sizes = [len(batch) for batch in each.batches]
    assert sizes[:5] == [4, 4, 2, 2, 4]
    assert set(sizes[4:]) == {4}
    assert [line for line in each.run.lines if line.startswith('stalled')] == [
        "stalled for 30 s, waiting for 'actor0'; it goes on without those that are silent, until "
        'they send again']


def test_credit_of_lost_trajectories_is_published_before_the_batch_is_full(graph):
    each = graph(actors=1, batch_size=4, max_in_flight=4, total_steps=40)
    each.dropped = {0, 1, 2}
    assert each.run() == 'total_steps'
    assert each.batches[0] == [(0, sequence) for sequence in (3, 4, 5, 6)]
    assert [version for version, _ in each.run.published][:2] == [0, 0]


def test_stale_trajectories_are_counted_and_credited_but_not_learned_from(graph):
    each = graph(actors=1, batch_size=1, max_in_flight=1, max_version_lag=2)
    each.slow.add(0)
    each.stop_at_stale(5)
    assert each.run() == 'interrupted'
    # Acted with version 0: versions 0, 1 and 2 learn from it, 3 does not, for ever.
    assert [sequence for batch in each.batches for _, sequence in batch] == [0, 1, 2]
    assert each.learner.version == 3
    assert each.flow_stats.rejected == each.flow_stats.lost == 0
    # The actor has one trajectory under way at most: without its credit it would have waited.
    assert [used for _, credits in each.run.published[1:]
            for _, used in credits.values()] == list(range(1, 3 + 5 + 1))
    assert [version for version, _ in each.run.published] == [0, 1, 2, 3, 3, 3, 3, 3, 3]
    assert each.flow_stats.lag_max == 3
    summary = each.run.summary
    assert (summary['trajectories_stale'], summary['trajectories_received']) == (5, 8)


def test_actor_with_a_stale_trajectory_catches_up(graph):
    each = graph(actors=2, num_actors=2, synchronous=True, batch_size=1, max_version_lag=0,
                 total_steps=150)
    each.slow.add(1)
    publish = each.run.publish

    def publish_and_wake():
        if each.flow_stats.stale:
            each.slow.clear()
        publish()

    each.run.publish = publish_and_wake
    assert each.run() == 'total_steps'
    assert each.flow_stats.stale == 1
    # What actor 1 sent second was too old, and is in no batch.
    assert each.batches[:3] == [[(0, 0), (1, 0)], [(0, 1), (1, 2)], [(0, 2), (1, 3)]]


def test_a_frozen_policy_does_not_change_and_its_actors_get_their_credit(graph):
    each = graph(freeze=True, batch_size=1, publish_every=2, total_steps=100)
    # As of a run that was resumed after an odd number of updates.
    each.learner.version = 1
    before = {name: array.copy() for name, array in each.learner.weights().items()}
    assert each.run() == 'total_steps'
    assert each.batches == []
    assert each.learner.version == 1
    assert all((before[name] == array).all() for name, array in each.learner.weights().items())
    assert (each.run.folder.path / 'episode.csv').exists()

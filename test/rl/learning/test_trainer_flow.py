"""The training loop: which trajectories an update takes; synchronous actors, stale ones."""

import dataclasses
import queue
import threading

import pytest

from vdl_ros.rl.acting.flow_control import Credit
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Callbacks
from vdl_ros.rl.learning.trainer import Trainer
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.settings import TrainConfig

CONFIG = TrainConfig(unroll_length=8, hidden_size=4, batch_size=2, total_steps=10**6)
SETTINGS = {'env_id': 'none', 'algorithm': 'impala'}


class Graph:
    """A trainer and its actors, who act whenever what was published allows it."""

    def __init__(self, random_unroll, spaces, path, actors=1, num_actors=1, **config):
        self.config = dataclasses.replace(CONFIG, **config)
        self.learner, self.flow_stats = Learner(self.config, *spaces), FlowStats()
        self._draw, self._stop = random_unroll, threading.Event()
        self.credits = {number: Credit(self.config.credit) for number in range(actors)}
        # By actor: the version of the policy that it acts with.
        self.versions = dict.fromkeys(self.credits, 0)
        self.slow = set()
        # Sequence numbers that do not arrive.
        self.dropped = set()
        self.published, self.batches = [], []
        self._channel = []
        self.folder = RunFolder(path)
        self.trainer = Trainer(
            self.learner, self, self.flow_stats, self.folder, SETTINGS,
            RunConfig(num_actors=num_actors, checkpoint_period=1e6, status_period=1e6),
            Callbacks(lambda: self.publish(), lambda line: None, lambda line: None))
        learn = self.learner.algorithm.update

        def update(batch):
            self.batches.append([(each.start_id, each.sequence) for each in batch.sources])
            return learn(batch)

        self.learner.algorithm.update = update

    def publish(self):
        credits = dict(self.flow_stats.credits())
        self.published.append((self.learner.version, credits))
        for number, credit in self.credits.items():
            credit.on_policy('learner', credits.get(number, ('', None))[1])
            if number not in self.slow:
                self.versions[number] = self.learner.version

    def get(self, timeout):
        """Return the next trajectory: of the actors in turn, of each as many as it may send."""
        if not self._channel:
            for number, credit in self.credits.items():
                while credit.available:
                    sequence = credit.spend()
                    if sequence not in self.dropped:
                        self._channel.append((number, sequence, self.versions[number]))
        if not self._channel:
            self._stop.set()  # all wait: so does the trainer, for ever
            raise queue.Empty
        number, sequence, version = self._channel.pop(0)
        self.flow_stats.arrive(f'actor{number}', number, sequence)
        return self._draw(sequence, batch=1, sequence=sequence, start_id=number,
                          actor_id=f'actor{number}', version=version)

    def run(self):
        return self.trainer.run(self._stop)


@pytest.fixture
def graph(random_unroll, spaces, tmp_path):
    def make(**settings):
        return Graph(random_unroll, spaces, tmp_path / 'run', **settings)
    return make


def test_asynchronous_trainer_learns_from_any_two_trajectories(graph):
    each = graph(actors=3, num_actors=3, total_steps=200)
    assert each.run() == 'total_steps'
    assert {len(batch) for batch in each.batches} == {2}
    assert any(len({number for number, _ in batch}) == 1 for batch in each.batches)


def test_synchronous_update_takes_batch_size_of_every_actor(graph):
    each = graph(actors=3, num_actors=3, synchronous=True, batch_size=2,
                 total_steps=200)
    assert each.run() == 'total_steps'
    assert len(each.batches) > 3
    for update, batch in enumerate(each.batches):
        expected = [(number, 2 * update + i)
                    for number in range(3) for i in range(2)]
        assert sorted(batch) == expected
    # So everything was acted with the very policy that learned from it.
    assert each.flow_stats.lag_max == 0
    assert each.flow_stats.lag_count == 3 * 2 * len(each.batches)


def test_synchronous_trainer_waits_for_all_actors(graph):
    each = graph(actors=2, num_actors=3, synchronous=True)
    assert each.run() == 'interrupted'
    assert each.batches == []
    assert each.learner.version == 0


def test_credit_of_lost_trajectories_is_published_before_the_batch_is_full(graph):
    each = graph(actors=1, batch_size=4, max_in_flight=4, total_steps=40)
    each.dropped = {0, 1, 2}
    assert each.run() == 'total_steps'
    assert each.batches[0] == [(0, sequence) for sequence in (3, 4, 5, 6)]
    assert [version for version, _ in each.published][:2] == [0, 0]


def test_stale_trajectories_are_counted_and_credited_but_not_learned_from(graph):
    each = graph(actors=1, batch_size=1, max_in_flight=1, max_version_lag=2, total_steps=300)
    each.slow.add(0)
    assert run_until_stale(each, 5) == 'interrupted'
    # Acted with version 0: versions 0, 1 and 2 learn from it, 3 does not, for ever.
    assert [sequence for batch in each.batches for _, sequence in batch] == [0, 1, 2]
    assert each.learner.version == 3
    assert each.flow_stats.stale == 5
    assert each.flow_stats.rejected == each.flow_stats.lost == 0
    # The actor has one trajectory under way at most: without its credit it would have waited.
    assert [used for _, credits in each.published[1:] for _, used in credits.values()] == list(
        range(1, 3 + 5 + 1))
    assert [version for version, _ in each.published] == [0, 1, 2, 3, 3, 3, 3, 3, 3]
    assert each.flow_stats.lag_max == 3
    summary = each.trainer.reporter.summary('')
    assert (summary['trajectories_stale'], summary['trajectories_received']) == (5, 8)


def run_until_stale(each, count):
    """Run until so many trajectories were too old and all was published."""
    get = each.get

    def stop_then(timeout):
        if each.flow_stats.stale == count:
            each._stop.set()
            raise queue.Empty
        return get(timeout)

    each.get = stop_then
    return each.run()


def test_trajectories_up_to_max_version_lag_are_learned_from(graph):
    each = graph(actors=2, batch_size=1, max_in_flight=1, max_version_lag=4, total_steps=400)
    each.slow.add(1)
    assert each.run() == 'total_steps'
    acted = [(number, version) for version, batch in enumerate(each.batches)
             for number, _ in batch]
    assert {version for number, version in acted if number == 1} <= set(range(5))
    assert max(version for number, version in acted if number == 0) > 10
    assert each.flow_stats.stale > 3


def test_actor_with_a_stale_trajectory_catches_up(graph):
    each = graph(actors=2, num_actors=2, synchronous=True, batch_size=1, max_version_lag=0,
                 total_steps=150)
    each.slow.add(1)
    publish = each.publish

    def publish_and_wake():
        if each.flow_stats.stale:
            each.slow.clear()
        publish()

    each.publish = publish_and_wake
    assert each.run() == 'total_steps'
    assert each.flow_stats.stale == 1
    # What actor 1 sent second was too old, and is in no batch.
    assert each.batches[:3] == [
        [(0, 0), (1, 0)], [(0, 1), (1, 2)], [(0, 2), (1, 3)]]
    assert each.trainer.reporter.summary('')['trajectories_stale'] == 1


def test_a_frozen_policy_does_not_change_and_its_actors_get_their_credit(graph):
    each = graph(freeze=True, batch_size=1, publish_every=2, total_steps=100)
    # As of a run that was resumed after an odd number of updates.
    each.learner.version = 1
    before = {name: array.copy() for name, array in each.learner.weights().items()}
    assert each.run() == 'total_steps'
    assert each.batches == []
    assert each.learner.version == 1
    assert all((before[name] == array).all() for name, array in each.learner.weights().items())
    assert (each.folder.path / 'episode.csv').exists()

"""Flow control: bounded pending trajectories, no deadlock, correct statistics."""

import itertools
from collections import deque

import numpy as np
import pytest

from vdl_ros.rl.acting.flow_control import Credit
from vdl_ros.rl.learning.flow_stats import FlowStats


class Actor:
    """An actor process: its credit, and messages that it sends in order."""

    def __init__(self, name, start_id, lag):
        self.name, self.start_id = name, start_id
        self.credit, self.learner, self.version = Credit(lag), '', -1

    def on_policy(self, policy):
        self.learner, self.version, credits = policy
        _, used = credits.get(self.start_id, (None, None))
        self.credit.on_policy(self.learner, used)


class Graph:
    """Simulates actors, one learner and pending messages, one event at a time."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.batch, self.publish_every = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        self.lag = self.batch * self.publish_every + int(rng.integers(0, 4))
        self.starts = itertools.count(1)
        self.actors = [self.start(f'actor{i}') for i in range(rng.integers(1, 5))]
        self.channels = [deque() for _ in self.actors]
        self.learners = self.updates = 0
        self.delivered, self.waits, self.lags = [], [], []
        self.start_learner()

    def start(self, name):
        return Actor(name, next(self.starts), self.lag)

    def start_learner(self):
        self.learners += 1
        self.learner, self.flow_stats = f'learner{self.learners}', FlowStats()
        self.version, self.inbox = 0, deque()
        self.publish()

    def publish(self):
        self.policy = (self.learner, self.version, dict(self.flow_stats.credits()))

    def on_policy(self, i):
        self.actors[i].on_policy(self.policy)

    def act(self, i):
        actor = self.actors[i]
        if actor.credit.available:
            self.channels[i].append((actor.learner, actor.name, actor.start_id,
                                     actor.credit.spend(), actor.version))

    def deliver(self, i, repeat=False):
        if not self.channels[i]:
            return
        message = self.channels[i][0] if repeat else self.channels[i].popleft()
        learner, name, start_id, sequence, version = message
        if learner != self.learner:
            return
        self.delivered.append((name, sequence))
        new, _ = self.flow_stats.arrive(name, start_id, sequence)
        if new:
            self.inbox.append((start_id, sequence, version, self.version))

    def learn(self):
        if len(self.inbox) < self.batch:
            return
        for _ in range(self.batch):
            start_id, _, version, arrived = self.inbox.popleft()
            self.waits.append(self.version - arrived)
            self.lags.append(max(self.version - version, 0))
            self.flow_stats.use(start_id, self.version - version)
        self.version += 1
        self.updates += 1
        if self.version % self.publish_every == 0:
            self.publish()

    def under_way(self, i):
        """Return how many of an actor's trajectories are sent to this learner and not used."""
        start_id = self.actors[i].start_id
        record = self.flow_stats.actor_records.get(start_id)
        arrived = record.expected if record else 0
        sent = {sequence for learner, _, start, sequence, _ in self.channels[i]
                if (learner, start) == (self.learner, start_id) and sequence >= arrived}
        return len(sent | {sequence for start, sequence, *_ in self.inbox if start == start_id})

    def events(self, count, *faults):
        """Let ``count`` events happen, drawn from all and the faults; bound what is under way."""
        for _ in range(count):
            i = int(self.rng.integers(len(self.actors)))
            kinds = ('on_policy', 'act', 'deliver', 'learn') * 2 + faults
            kind, chance = kinds[self.rng.integers(len(kinds))], self.rng.random()
            if kind == 'learn':
                self.learn()
            elif kind == 'repeat':
                self.deliver(i, repeat=True)
            elif kind == 'restart learner':
                if chance < 0.02:
                    self.start_learner()
            elif kind == 'restart actor':
                if chance < 0.05:
                    self.actors[i] = self.start(self.actors[i].name)
            elif kind == 'drop':
                if chance < 0.4 and self.channels[i]:
                    self.channels[i].popleft()
            else:
                getattr(self, kind)(i)
            if 'drop' not in faults:
                assert all(self.under_way(i) <= self.lag for i in range(len(self.actors)))

    def go_on(self, rounds, write_off=False):
        """Let everyone do everything in turn, without faults; return the number of updates."""
        before = self.updates
        for _ in range(rounds):
            for i, actor in enumerate(self.actors):
                self.on_policy(i)
                if write_off and not actor.credit.available:
                    actor.credit.write_off()
                self.act(i)
                self.deliver(i)
            self.learn()
        return self.updates - before


@pytest.mark.parametrize('faults', [
    (), ('repeat',), ('restart actor',), ('restart learner',),
    ('repeat', 'restart actor', 'restart learner')], ids='+'.join)
def test_pending_trajectories_are_bounded_and_no_actor_waits_forever(faults):
    for seed in range(6):
        graph = Graph(seed)
        graph.events(500, *faults)
        assert graph.go_on(60) >= 60 // graph.batch // 2, f'stuck with seed {seed}'


def test_actors_continue_after_lost_trajectories_are_written_off():
    for seed in range(15):
        graph = Graph(seed)
        graph.events(500, 'drop', 'restart actor', 'restart learner')
        graph.go_on(5 * graph.lag, write_off=True)
        assert graph.go_on(60) >= 60 // graph.batch // 2, f'stuck with seed {seed}'


def test_waiting_time_and_policy_lag_are_bounded():
    for seed in range(6):
        graph = Graph(seed)
        graph.events(1500, 'act', 'on_policy', 'deliver')
        assert graph.updates > 20
        assert max(graph.waits) <= len(graph.actors) * graph.lag / graph.batch, seed
        if len(graph.actors) == 1:
            assert max(graph.lags) <= graph.lag / graph.batch, seed
        assert graph.flow_stats.lag_max == max(graph.lags)
        assert graph.flow_stats.lag_mean == pytest.approx(np.mean(graph.lags))
        assert graph.flow_stats.lag_count == len(graph.lags)


def test_losses_and_repetitions_are_counted_exactly():
    for seed in range(6):
        graph = Graph(seed)
        graph.go_on(3)
        graph.events(800, 'drop', 'repeat')
        graph.go_on(5 * graph.lag, write_off=True)
        stats, numbers = graph.flow_stats, {}
        for name, sequence in graph.delivered:
            numbers.setdefault(name, set()).add(sequence)
        missing = sum(max(each) + 1 - len(each) for each in numbers.values())
        assert stats.lost == missing > 0, seed
        assert stats.received == sum(map(len, numbers.values())), seed
        assert stats.duplicates == len(graph.delivered) - stats.received, seed


def test_credit_is_spent_and_restored():
    credit = Credit(2)
    assert not credit.available, 'before the first policy'
    credit.on_policy('learner', None)
    assert [credit.spend(), credit.spend()] == [0, 1]
    assert not credit.available
    credit.on_policy('learner', 1)
    assert (credit.outstanding, credit.available) == (1, True)
    credit.on_policy('learner', 0)  # an older policy takes nothing back
    assert credit.outstanding == 1
    credit.on_policy('learner', 10**6)  # more than was sent
    assert [credit.spend(), credit.spend()] == [2, 3]
    assert not credit.available
    credit.on_policy('new', None)
    assert credit.outstanding == 0, 'what was sent to an earlier learner does not count'
    assert [credit.spend(), credit.spend()] == [4, 5]
    for outstanding in (1, 0, 0):
        credit.write_off()
        assert credit.outstanding == outstanding, 'one less, but at most what is pending'


class Waiting:
    """An actor that has spent its credit of two, and the policies of a learner."""

    def __init__(self):
        self.now, self.version = 0.0, 0
        self.credit = Credit(2, batch_size=2, timeout=10.0, clock=lambda: self.now)
        self.policy(0.0, updates=1)
        self.credit.spend()
        self.credit.spend()

    def policy(self, seconds, updates, used=None, num_actors=3):
        self.now += seconds
        self.version += updates
        self.credit.on_policy('learner', used, self.version, num_actors)
        return self.credit.is_lost


def test_lost_trajectories_are_given_up_although_other_actors_keep_the_learner_busy():
    actor = Waiting()
    given_up = [second for second in range(30) if actor.policy(1.0, updates=20)]
    assert given_up[0] == 10
    actor.credit.write_off()
    assert actor.credit.available
    assert not actor.policy(1.0, updates=20), 'the next one has its own time'


def test_trajectories_that_wait_in_the_learner_are_not_given_up():
    # 50 actors and a slow learner: it is this one's turn after up to 50 updates.
    actor = Waiting()
    assert not any(actor.policy(10.0, updates=1, num_actors=50) for _ in range(50))
    # Credit for one of two: the other one waits from now on.
    assert not actor.policy(10.0, updates=1, num_actors=50, used=1)
    assert not any(actor.policy(10.0, updates=1, num_actors=50) for _ in range(50))


def test_a_trajectory_is_given_up_if_no_policy_comes():
    actor = Waiting()
    actor.now += 9.9
    assert not actor.credit.is_lost
    actor.now += 0.2
    assert actor.credit.is_lost
    actor.credit.wait_again()
    assert not actor.credit.is_lost


def test_an_actor_with_nothing_pending_has_lost_nothing():
    actor = Waiting()
    actor.policy(0.0, updates=1, used=2)
    for _ in range(50):
        assert not actor.policy(10.0, updates=100)
    actor.credit.spend()
    assert not actor.policy(0.1, updates=100), 'it waits since it was sent'


def test_a_new_learner_counts_no_losses_of_an_earlier_one():
    flow_stats = FlowStats()
    assert flow_stats.lag_mean == 0.0
    assert flow_stats.arrive('a', 1, 41) == (True, 0)
    assert flow_stats.arrive('a', 1, 44) == (True, 2)
    assert (flow_stats.received, flow_stats.lost, flow_stats.duplicates) == (2, 2, 0)
    assert flow_stats.credits() == {1: ('a', 43)}, 'the two that are lost count as used'
    flow_stats.use(1, 3)
    assert flow_stats.credits() == {1: ('a', 44)}


def test_late_repeated_and_impossible_trajectories_are_not_new():
    flow_stats = FlowStats()
    for sequence, expected in ((0, (True, 0)), (2, (True, 1)), (1, (False, 0)), (2, (False, 0)),
                               (2**40, (False, 0)), (3, (True, 0))):
        assert flow_stats.arrive('a', 1, sequence) == expected, sequence
    assert (flow_stats.received, flow_stats.lost, flow_stats.duplicates) == (3, 1, 2)
    assert flow_stats.rejected == 1, 'a jump that no credit allows'


def test_processes_with_one_name_have_separate_credit_and_count_as_restarts():
    flow_stats = FlowStats()
    flow_stats.arrive('a', 1, 7)
    assert flow_stats.arrive('a', 2, 0) == (True, 0)
    flow_stats.use(1, 0)  # of the dead process: no credit for the new one
    assert flow_stats.credits() == {1: ('a', 8), 2: ('a', 0)}
    assert flow_stats.arrive('a', 1, 8) == (True, 0), 'what the dead one sent may come late'
    assert (flow_stats.lost, flow_stats.duplicates, flow_stats.actor_restarts) == (0, 0, 1)
    flow_stats.arrive('b', 1000, 0)
    flow_stats.arrive('a', 3, 0)
    assert (flow_stats.actor_restarts, flow_stats.actors) == (2, 2)
    # The learner restarted too: its earlier process knew actors by these starts.
    flow_stats = FlowStats(earlier_starts={'a': 1, 'b': 2})
    for sequence in range(3):
        for name, start_id in (('a', 7), ('b', 2), ('new', 3)):
            flow_stats.arrive(name, start_id, sequence)
    assert flow_stats.actor_restarts == 1


def test_credit_is_due_once_something_is_lost_and_fits_a_message():
    flow_stats = FlowStats()
    for sequence, due in ((0, False), (1, False), (3, True)):
        flow_stats.arrive('a', 1, sequence)
        assert flow_stats.credit_due == due
    flow_stats.credit_due = False
    flow_stats.arrive('stranger', 2, 2**64 - 1)
    assert flow_stats.credit_due, 'they were sent to an earlier learner, or are lost'
    flow_stats.use(2, -(2**63))
    assert flow_stats.credits() == {1: ('a', 1), 2: ('stranger', 2**64 - 1)}
    assert flow_stats.lag_max == 0


def test_a_silent_actor_is_absent_after_a_minute_and_forgotten_after_ten():
    now = [0.0]
    flow_stats = FlowStats(clock=lambda: now[0])
    for start_id, name in ((1, 'used'), (2, 'waiting')):
        flow_stats.arrive(name, start_id, 0)
    flow_stats.use(1, 0)
    for now[0], actors, credits in ((59.0, 2, {1, 2}), (61.0, 1, {1, 2}), (599.0, 1, {1, 2}),
                                    (601.0, 1, {2}), (10_000.0, 1, {2})):
        assert flow_stats.actors == actors
        assert flow_stats.credits().keys() == credits, 'what waits is not forgotten'
    # However late it is used, its actor gets the credit.
    flow_stats.use(2, 0)
    assert flow_stats.credits() == {2: ('waiting', 1)}
    # An actor that was only slow continues.
    assert flow_stats.arrive('used', 1, 7) == (True, 0)
    assert flow_stats.actors == 2
    assert (flow_stats.lost, flow_stats.actor_restarts) == (0, 0)


def test_of_many_actors_a_policy_has_the_credits_that_changed_and_all_once_a_second():
    now = [0.0]
    flow_stats = FlowStats(clock=lambda: now[0])
    for number in range(100):
        flow_stats.arrive(f'a{number}', number, 0)
    assert len(flow_stats.credits_to_send()) == 100
    now[0] = 0.9
    assert flow_stats.credits_to_send() == {}
    flow_stats.use(7, 0)
    flow_stats.arrive('new', 100, 0)
    assert flow_stats.credits_to_send() == {7: ('a7', 1), 100: ('new', 0)}
    assert flow_stats.credits_to_send() == {}
    now[0] = 1.0
    assert flow_stats.credits_to_send() == flow_stats.credits()
    few = FlowStats()
    few.arrive('one', 1, 0)
    assert few.credits_to_send() == few.credits_to_send() == {1: ('one', 0)}


def test_a_short_list_of_credits_does_not_shorten_how_long_an_actor_waits():
    """The list of all actors comes once a second; between two of them others are longer used."""
    now = [0.0]
    credit = Credit(1, timeout=10.0, clock=lambda: now[0])
    credit.on_policy('one', 0, 0, num_actors=100)
    credit.spend()
    now[0] = 20.0
    credit.on_policy('one', None, 50, num_actors=2)
    assert not credit.is_lost
    credit.on_policy('one', None, 250, num_actors=2)
    assert credit.is_lost

"""Flow control: bounded pending trajectories, no deadlock, correct statistics."""

from collections import deque

import numpy as np
import pytest

from vdl_ros.rl.acting.flow_control import MOST_ACTORS, ActorRecord, Credit, FlowStats


class Process:
    """An actor process: its credit, and messages that it sends in order."""

    def __init__(self, name, start_id, lag):
        self.name, self.start_id = name, start_id
        self.credit = Credit(lag)
        self.learner, self.version = '', -1

    def on_policy(self, policy):
        learner, version, credits = policy
        self.learner, self.version = learner, version
        _, used = credits.get(self.start_id, (None, None))
        self.credit.on_policy(learner, used)


class Graph:
    """Simulates actors, one learner and pending messages, one event at a time."""

    def __init__(self, rng, actors, lag, batch, publish_every):
        self.rng, self.lag, self.batch, self.publish_every = rng, lag, batch, publish_every
        self.start_id = 0
        self.processes = [Process(f'actor{i}', self._start_id(), lag) for i in range(actors)]
        self.channels = [deque() for _ in range(actors)]
        self.learners = 0
        self.updates = 0
        self.delivered = []
        self.waits, self.lags = [], []
        self.start_learner()

    def _start_id(self):
        self.start_id += 1
        return self.start_id

    def start_learner(self):
        self.learners += 1
        self.learner, self.flow_stats = f'learner{self.learners}', FlowStats()
        self.version, self.inbox = 0, deque()
        self.publish()

    def restart_actor(self, i):
        name = self.processes[i].name
        self.processes[i] = Process(name, self._start_id(), self.lag)

    def publish(self):
        self.policy = (self.learner, self.version, dict(self.flow_stats.credits()))

    def on_policy(self, i):
        self.processes[i].on_policy(self.policy)

    def act(self, i):
        process = self.processes[i]
        if process.credit.available:
            self.channels[i].append((process.learner, process.name, process.start_id,
                                     process.credit.spend(), process.version))

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
            self.inbox.append((name, start_id, sequence, version, self.version))

    def drop(self, i):
        if self.channels[i]:
            self.channels[i].popleft()

    def learn(self):
        if len(self.inbox) < self.batch:
            return
        for _ in range(self.batch):
            _, start_id, _, version, arrived = self.inbox.popleft()
            self.waits.append(self.version - arrived)
            self.lags.append(max(self.version - version, 0))
            self.flow_stats.use(start_id, self.version - version)
        self.version += 1
        self.updates += 1
        if self.version % self.publish_every == 0:
            self.publish()

    def under_way(self, i):
        """Return how many of an actor's trajectories are sent to this learner and not used."""
        process = self.processes[i]
        peer = self.flow_stats.actor_records.get(process.start_id)
        arrived = peer.expected if peer else 0
        sent = [m for m in self.channels[i]
                if (m[0], m[2]) == (self.learner, process.start_id) and m[3] >= arrived]
        waiting = [m for m in self.inbox if m[:2] == (process.name, process.start_id)]
        return len({m[3] for m in sent} | {m[2] for m in waiting})

    def random_event(self, kinds):
        i = int(self.rng.integers(len(self.processes)))
        kind = kinds[self.rng.integers(len(kinds))]
        if kind == 'learn':
            self.learn()
        elif kind == 'repeat':
            self.deliver(i, repeat=True)
        elif kind == 'restart learner':
            if self.rng.random() < 0.02:
                self.start_learner()
        elif kind == 'restart actor':
            if self.rng.random() < 0.05:
                self.restart_actor(i)
        elif kind == 'drop':
            if self.rng.random() < 0.2:
                self.drop(i)
        else:
            getattr(self, kind)(i)

    def go_on(self, rounds, write_off=False):
        """Let everyone do everything in turn, without faults."""
        for _ in range(rounds):
            for i, process in enumerate(self.processes):
                self.on_policy(i)
                if write_off and not process.credit.available:
                    process.credit.write_off()
                self.act(i)
                self.deliver(i)
            self.learn()


NORMAL = ['on_policy', 'act', 'deliver', 'learn']


def graph(seed):
    rng = np.random.default_rng(seed)
    batch, every = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    lag = batch * every + int(rng.integers(0, 4))
    return Graph(rng, int(rng.integers(1, 5)), lag, batch, every)


@pytest.mark.parametrize('faults', [
    [], ['repeat'], ['restart actor'], ['restart learner'], ['restart actor', 'restart learner'],
    ['repeat', 'restart actor', 'restart learner']], ids='+'.join)
def test_pending_trajectories_are_bounded_and_no_actor_waits_forever(faults):
    for seed in range(15):
        each = graph(seed)
        for _ in range(600):
            each.random_event(NORMAL * 2 + faults)
            assert all(each.under_way(i) <= each.lag for i in range(len(each.processes)))
        before = each.updates
        each.go_on(60)
        assert each.updates - before >= 60 // each.batch // 2, f'stuck with seed {seed}'


def test_actors_continue_after_lost_trajectories_are_written_off():
    for seed in range(30):
        each = graph(seed)
        for _ in range(600):
            each.random_event(NORMAL * 2 + ['drop', 'drop', 'restart actor', 'restart learner'])
        each.go_on(5 * each.lag, write_off=True)
        before = each.updates
        each.go_on(60)
        assert each.updates - before >= 60 // each.batch // 2, f'stuck with seed {seed}'


def test_a_batch_larger_than_the_credit_is_a_deadlock():
    # verify() rejects such settings; this checks that the simulation detects the deadlock.
    each = Graph(np.random.default_rng(0), 1, lag=3, batch=2, publish_every=2)
    each.go_on(100)
    assert each.updates == 1


@pytest.mark.parametrize('seed', range(10))
def test_waiting_time_and_policy_lag_are_bounded(seed):
    each = graph(seed)
    for _ in range(3000):
        each.random_event(NORMAL + ['act', 'on_policy', 'deliver'])
    assert each.updates > 20
    assert max(each.waits) <= len(each.processes) * each.lag / each.batch
    if len(each.processes) == 1:
        assert max(each.lags) <= each.lag / each.batch
    assert each.flow_stats.lag_max == max(each.lags)
    assert each.flow_stats.lag_mean == pytest.approx(np.mean(each.lags))
    assert each.flow_stats.lag_count == len(each.lags)


@pytest.mark.parametrize('seed', range(10))
def test_losses_and_repetitions_are_counted_exactly(seed):
    each = graph(seed)
    each.go_on(3)
    for _ in range(800):
        each.random_event(NORMAL * 2 + ['drop', 'drop', 'repeat'])
    each.go_on(5 * each.lag, write_off=True)
    seen = {peer.actor_id: set() for peer in each.flow_stats.actor_records.values()}
    for name, sequence in each.delivered:
        seen[name].add(sequence)
    missing = sum(max(numbers) + 1 - len(numbers) for numbers in seen.values())
    assert missing > 0
    assert each.flow_stats.lost == missing
    assert each.flow_stats.received == sum(map(len, seen.values()))
    assert each.flow_stats.duplicates == len(each.delivered) - each.flow_stats.received


def test_there_is_no_credit_before_the_first_policy():
    credit = Credit(4)
    assert not credit.available
    credit.on_policy('learner', None)
    assert credit.available


def test_credit_is_spent_and_restored():
    credit = Credit(2)
    credit.on_policy('learner', None)
    assert [credit.spend(), credit.spend()] == [0, 1]
    assert not credit.available
    credit.on_policy('learner', 1)
    assert (credit.outstanding, credit.available) == (1, True)
    credit.on_policy('learner', 0)  # an older policy takes nothing back
    assert credit.outstanding == 1


def test_a_learner_that_claims_more_than_was_sent_gives_no_more_credit():
    credit = Credit(2)
    credit.on_policy('learner', 10**6)
    for _ in range(2):
        credit.spend()
    assert not credit.available


def test_trajectories_sent_to_an_earlier_learner_do_not_count():
    credit = Credit(2)
    credit.on_policy('old', None)
    credit.spend()
    credit.spend()
    credit.on_policy('new', None)
    assert credit.outstanding == 0
    assert credit.spend() == 2


def test_write_off_restores_one_credit_but_at_most_the_pending_ones():
    credit = Credit(1)
    credit.on_policy('learner', None)
    credit.spend()
    credit.write_off()
    assert credit.available
    credit.write_off()
    assert credit.outstanding == 0


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
    assert flow_stats.arrive('a', 1, 41) == (True, 0)
    assert flow_stats.arrive('a', 1, 44) == (True, 2)
    assert (flow_stats.received, flow_stats.lost, flow_stats.duplicates) == (2, 2, 0)
    assert flow_stats.credits() == {1: ('a', 43)}, 'the two that are lost count as used'
    flow_stats.use(1, 3)
    assert flow_stats.credits() == {1: ('a', 44)}


def test_late_and_duplicate_trajectories_are_not_new():
    flow_stats = FlowStats()
    for sequence, expected in ((0, (True, 0)), (2, (True, 1)), (1, (False, 0)), (2, (False, 0)),
                               (3, (True, 0))):
        assert flow_stats.arrive('a', 1, sequence) == expected
    assert (flow_stats.received, flow_stats.lost, flow_stats.duplicates) == (3, 1, 2)


def test_a_restarted_actor_starts_with_a_new_record():
    flow_stats = FlowStats()
    flow_stats.arrive('a', 1, 7)
    assert flow_stats.arrive('a', 2, 0) == (True, 0)
    flow_stats.use(1, 0)  # of the dead process: no credit for the new one
    assert flow_stats.credits() == {1: ('a', 8), 2: ('a', 0)}
    assert flow_stats.arrive('a', 1, 8) == (True, 0), 'what the dead one sent may come late'
    assert (flow_stats.lost, flow_stats.actor_restarts) == (0, 1)


def test_credit_is_due_once_something_is_lost():
    flow_stats = FlowStats()
    for sequence, due in ((0, False), (1, False), (3, True)):
        flow_stats.arrive('a', 1, sequence)
        assert flow_stats.credit_due == due
    flow_stats.credit_due = False
    flow_stats.arrive('b', 2, 7)
    assert flow_stats.credit_due, 'seven were sent to an earlier learner, or are lost'
    assert flow_stats.credits() == {1: ('a', 1), 2: ('b', 7)}


def test_the_largest_sequence_number_still_fits_a_message():
    flow_stats = FlowStats()
    flow_stats.arrive('stranger', 1, 2**64 - 1)
    flow_stats.use(1, -(2**63))
    assert flow_stats.credits()[1] == ('stranger', 2**64 - 1)
    assert flow_stats.lag_max == 0


def test_two_running_actors_with_one_name_have_separate_credit():
    flow_stats = FlowStats()
    for sequence in range(5):
        for start_id in (1, 2):
            assert flow_stats.arrive('a', start_id, sequence) == (True, 0)
            flow_stats.use(start_id, 0)
    assert flow_stats.credits() == {1: ('a', 5), 2: ('a', 5)}
    assert (flow_stats.lost, flow_stats.duplicates) == (0, 0)
    assert (flow_stats.actor_restarts, flow_stats.actors) == (1, 1)


def test_records_of_earlier_processes_are_dropped_but_restarts_counted():
    flow_stats = FlowStats()
    flow_stats.arrive('b', 1000, 0)
    for start_id in range(100):
        flow_stats.arrive('a', start_id, 0)
    assert len(flow_stats.actor_records) < 10
    assert flow_stats.actor_restarts == 99
    assert flow_stats.actors == 2


def test_actors_are_counted_while_another_thread_adds_one():
    """The executor's thread counts them, the training thread adds them."""
    flow_stats = FlowStats()
    for start_id in range(3):
        flow_stats.arrive(f'a{start_id}', start_id, 0)

    class Interrupting(ActorRecord):
        """A record during whose reading the other thread runs."""

        def is_silent(self, since):
            flow_stats.actor_records[77] = ActorRecord('new')
            return super().is_silent(since)

    flow_stats.actor_records[1] = Interrupting('a1', active_at=flow_stats.clock())
    assert flow_stats.actors == 3
    assert 77 in flow_stats.actor_records


def test_an_actor_that_restarts_while_the_learner_does_is_counted_once():
    flow_stats = FlowStats(earlier_starts={'a': 1, 'b': 2})
    for sequence in range(3):
        flow_stats.arrive('a', 7, sequence)
        flow_stats.arrive('b', 2, sequence)
        flow_stats.arrive('new', 3, sequence)
    assert flow_stats.actor_restarts == 1


def test_actors_that_are_gone_are_forgotten_and_the_busiest_is_not():
    # 5,000 starts, as of a stranger or of an actor that fails at once, beside one that works.
    flow_stats = FlowStats()
    for start_id in range(1, 5001):
        flow_stats.arrive('busy', 0, start_id)
        flow_stats.use(0, 0)
        flow_stats.arrive(f'stranger {start_id}', start_id, 0)
        flow_stats.use(start_id, 0)
    assert len(flow_stats.credits()) <= MOST_ACTORS
    assert flow_stats.credits()[0] == ('busy', 5001)
    assert flow_stats.lost == flow_stats.duplicates == flow_stats.actor_restarts == 0


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


def test_a_jump_that_no_credit_allows_is_rejected():
    flow_stats = FlowStats()
    flow_stats.arrive('a', 1, 0)
    assert flow_stats.arrive('a', 1, 2**40) == (False, 0)
    assert (flow_stats.lost, flow_stats.rejected) == (0, 1)
    assert flow_stats.arrive('a', 1, 1) == (True, 0)


def test_the_mean_lag_is_0_before_the_first_trajectory():
    assert FlowStats().lag_mean == 0.0


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

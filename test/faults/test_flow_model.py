"""Row of the fault matrix: the credit flow in virtual time, over a network that fails."""

from collections import deque

import pytest

from vdl_ros.rl.acting.flow_control import Credit, LearnerChoice
from vdl_ros.rl.learning.flow_stats import FlowStats

OPERATIONS = 200
STEP_S, TIMEOUT_S = 0.1, 10.0
# After which a process that is gone or cut off has left the graph.
LEASE_S = 5.0
LONG_S = 650.0
KINDS = {'run': 60, 'drop': 6, 'duplicate': 6, 'reorder': 6, 'clean': 6, 'part': 4, 'heal': 8,
         'restart actor': 2, 'restart learner': 1, 'stop learner': 1, 'slow update': 1,
         'part for long': 0.1}


class Actor:
    """One process: what actor_modes.py and the actor node do with policies and credit."""

    def __init__(self, world, name, start_id):
        self.world, self.name, self.start_id = world, name, start_id
        self.credit = Credit(world.lag, world.batch, TIMEOUT_S, world.clock)
        self.choice = LearnerChoice(TIMEOUT_S, world.clock)
        self.learner, self.version = '', -1
        self.policy = self.other = None
        # By learner: trajectories that were written off, and when the last one was.
        self.written_off, self.written_off_at = {}, -TIMEOUT_S
        self.sent_at = -1.0
        # Whether it reaches the learner, and when it last did.
        self.is_connected, self.contact_at = True, world.now

    @property
    def sees_learner(self):
        return self.world.now - self.contact_at <= LEASE_S

    def on_policy(self, policy):
        if self.choice.is_over(policy[0]):
            return
        if self.choice.allows(policy[0], self.world.num_publishers):
            self.policy = policy
            if self.other and self.other[0] == policy[0]:
                self.other = None
        else:
            self.other = policy

    def on_busy(self, learner):
        if learner == self.learner:
            self.choice.heard()
            self.credit.on_busy()

    def act(self):
        if self.other and self.choice.allows(self.other[0], self.world.num_publishers):
            self.policy, self.other = self.other, None
        if self.policy:
            self.learner, self.version, credits = self.policy
            self.policy = None
            _, used = credits.get(self.start_id, (None, None))
            self.credit.on_policy(self.learner, used, self.version, len(credits))
            self.choice.stay_with(self.learner)
        if not self.credit.available:
            self._write_off_lost()
        elif self.sees_learner:
            self.sent_at = self.world.now
            self.world.send(self, (
                self.learner, self.name, self.start_id, self.credit.spend(), self.version))

    def _write_off_lost(self):
        if not self.credit.is_lost:
            return
        if not self.sees_learner:
            self.credit.wait_again()
            return
        now = self.world.now
        assert now - self.written_off_at >= TIMEOUT_S, 'given up before the time-out'
        self.written_off_at = now
        self.written_off[self.learner] = self.written_off.get(self.learner, 0) + 1
        self.credit.write_off()


class World:
    """Actors, the newest learner and the network between them, in steps of time."""

    def __init__(self, rng):
        self.rng, self.now = rng, 0.0
        self.batch, self.every = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        self.lag = self.batch * self.every + int(rng.integers(0, 4))
        # (due, actor, message): to an actor, or to the learner: None.
        self.network = []
        self.chances = {'drop': 0.0, 'duplicate': 0.0, 'reorder': 0.0}
        self.expected, self.arrived = {}, set()
        self.learned, self.updates, self.starts, self.learners = set(), 0, 0, 0
        self.stopped_until = self.earlier_gone_at = 0.0
        self.slow = False
        self.actors = [self.new_actor(f'actor{i}') for i in range(int(rng.integers(1, 5)))]
        self.start_learner()

    def clock(self):
        return self.now

    @property
    def num_publishers(self):
        """Learners that the graph shows; one that was killed stays for a while."""
        return 1 + (self.now < self.earlier_gone_at)

    def new_actor(self, name):
        self.starts += 1
        return Actor(self, name, self.starts)

    def start_learner(self):
        self.learners += 1
        self.learner, self.version = f'launch/{self.learners:04d}', 0
        self.flow_stats = FlowStats(clock=self.clock)
        self.inbox, self.unrolls = deque(), []
        self.update_ends, self.busy_at = None, 0.0
        self.publish()

    def publish(self):
        self.latched = (self.learner, self.version, dict(self.flow_stats.credits()))
        for actor in self.actors:
            if actor.is_connected:
                self.network.append((self.now + self.delay(), actor, self.latched))

    def delay(self):
        late = self.rng.random() < self.chances['reorder']
        return self.rng.uniform(0.0, 3.0) if late else 0.05

    def send(self, actor, message):
        if self.rng.random() < self.chances['drop'] or not (
                actor.is_connected or self.rng.random() < 0.5):
            return
        # What a cut-off actor has queued arrives once it is connected again.
        self.network.append((self.now + self.delay(), None, message))
        if actor.is_connected and self.rng.random() < self.chances['duplicate']:
            self.network.append((self.now + self.delay() + STEP_S, None, message))

    def step(self, seconds=STEP_S):
        self.now += seconds
        learner_runs = self.now >= self.stopped_until
        for actor in self.actors:
            if actor.is_connected and learner_runs:
                if not actor.sees_learner:
                    actor.on_policy(self.latched)
                actor.contact_at = self.now
        due = [each for each in self.network if each[0] <= self.now]
        self.network = [each for each in self.network if each[0] > self.now]
        cut_off = {actor.start_id for actor in self.actors if not actor.is_connected}
        for each in due:
            _, actor, message = each
            if actor is not None:
                if actor.is_connected:
                    actor.on_policy(message)
                continue
            if message[2] in cut_off:
                # What has arrived once is not kept.
                if message[2:4] not in self.arrived:
                    self.network.append(each)
                continue
            self.arrived.add(message[2:4])
            if message[0] == self.learner:
                self.inbox.append(message)
        for actor in self.actors:
            actor.act()
        if learner_runs:
            self.learn()

    def learn(self):
        """Do what the trainer does in one turn of its loop."""
        if self.update_ends is None:
            while self.inbox and len(self.unrolls) < self.batch:
                _, name, start_id, sequence, version = self.inbox.popleft()
                new, _ = self.flow_stats.arrive(name, start_id, sequence)
                if new:
                    self.unrolls.append((start_id, sequence, version))
            if self.flow_stats.credit_due:
                self.flow_stats.credit_due = False
                self.publish()
            if len(self.unrolls) == self.batch:
                self.update_ends = self.now + (25.0 if self.slow else self.rng.uniform(0.0, 0.3))
                self.slow = False
        elif self.now >= self.update_ends:
            for start_id, sequence, version in self.unrolls:
                assert (start_id, sequence) not in self.learned, 'learned twice'
                self.learned.add((start_id, sequence))
                self.flow_stats.use(start_id, self.version - version)
            self.unrolls, self.update_ends = [], None
            self.version += 1
            self.updates += 1
            if self.version % self.every == 0:
                self.publish()
        elif self.now - self.busy_at >= 1.0:
            self.busy_at = self.now
            for actor in self.actors:
                if actor.is_connected:
                    actor.on_busy(self.learner)

    def under_way(self, actor):
        """Return how many trajectories of an actor may still be learned from, or wait."""
        record = self.flow_stats.actor_records.get(actor.start_id)
        # Of an actor that the learner has forgotten, the last number it knew.
        key = self.learner, actor.start_id
        expected = self.expected[key] = record.expected if record else self.expected.get(key, 0)
        found = {message[3] for _, to, message in self.network
                 if to is None and message[:3:2] == (self.learner, actor.start_id)}
        found |= {message[3] for message in self.inbox if message[2] == actor.start_id}
        return len({number for number in found if number >= expected}
                   | {number for start_id, number, _ in self.unrolls
                      if start_id == actor.start_id})

    def operate(self, kind):
        rng = self.rng
        number = int(rng.integers(len(self.actors)))
        actor = self.actors[number]
        if kind in self.chances:
            self.chances[kind] = rng.choice([0.1, 0.5, 1.0])
        elif kind == 'clean':
            self.chances = dict.fromkeys(self.chances, 0.0)
        elif kind in ('part', 'heal'):
            self.connect(actor, kind == 'heal')
        elif kind == 'part for long':
            self.connect(actor, False)
            for _ in range(int(LONG_S)):
                self.step(1.0)
        elif kind == 'restart actor':
            self.actors[number] = self.new_actor(actor.name)
            self.actors[number].on_policy(self.latched)
        elif kind == 'restart learner':
            self.earlier_gone_at = self.now + LEASE_S
            self.start_learner()
        elif kind == 'stop learner':
            self.stopped_until = self.now + rng.uniform(0.0, 30.0)
        elif kind == 'slow update':
            self.slow = True
        for _ in range(int(rng.integers(1, 15))):
            self.step()
        for each in self.actors:
            assert self.under_way(each) <= self.lag + each.written_off.get(self.learner, 0)

    def connect(self, actor, connected):
        if connected and not actor.is_connected:
            # The newest policy is latched.
            self.network.append((self.now, actor, self.latched))
        actor.is_connected = connected

    def end_faults(self):
        self.chances = dict.fromkeys(self.chances, 0.0)
        self.stopped_until, self.slow = self.now, False
        self.update_ends = self.update_ends and min(self.update_ends, self.now)
        for actor in self.actors:
            self.connect(actor, True)


@pytest.mark.fault_row(
    'model of the credit flow with real `Credit` and `FlowStats`: drop, duplicate, reorder, '
    'partition, restarts', 'nothing learned twice, bounds hold, progress within two time-outs',
    smoke=40, reduced=1000, full=2000)
def test_credit_flow_goes_on_within_two_time_outs_of_the_last_fault(trials):
    def live(index, rng):
        world = World(rng)
        chances = [weight / sum(KINDS.values()) for weight in KINDS.values()]
        for kind in rng.choice(list(KINDS), OPERATIONS, p=chances):
            world.operate(str(kind))
        world.end_faults()
        ended, before, took = world.now, world.updates, None
        while took is None or any(actor.sent_at <= ended for actor in world.actors):
            world.step()
            if took is None and world.updates > before + 1:
                took = world.now - ended
            assert took is not None or world.now - ended <= 2 * TIMEOUT_S, (
                f'{world.updates - before} updates; {world.batch} of {len(world.actors)} actors, '
                f'credit {world.lag}, waiting {len(world.unrolls)}')
            # An actor whose trajectories are lost while others keep the learner busy waits for
            # as many updates as a trajectory can wait for its turn, and two more until
            # `is_lost`; it hears of them late, and of each `every`-th only.
            turns = 2 * (world.starts + 1) * world.lag // world.batch + 2 + 2 * world.every
            assert world.now - ended <= 2 * TIMEOUT_S or world.updates - before <= turns, (
                'an actor does not act')
        return {'second update (s)': took, 'all act (s)': world.now - ended}

    trials.run(live)

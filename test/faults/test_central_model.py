"""Row of the fault matrix: synchronous central inference in virtual time, over a bad network."""

import dataclasses
import queue
import threading
from types import SimpleNamespace

import pytest
import torch
from central_sides import Asking

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.central_inference import CentralInference
from vdl_ros.rl.acting.flow_control import FlowStats
from vdl_ros.rl.acting.remote_actor import StepSchema
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.trainer import Trainer
from vdl_ros.rl.train_config import TrainConfig

OPERATIONS = 200
STEP_S, RETRY_S, STALL_S = 0.1, 1.0, 10.0
ENVIRONMENTS = ('vdl/Counter-v0', 'vdl/PixelCounter-v0')
KINDS = {'run': 60, 'drop': 6, 'duplicate': 6, 'reorder': 6, 'clean': 6, 'part': 4, 'heal': 8,
         'restart actor': 12, 'kill actor': 4, 'start actors': 6, 'restart learner': 2}


class LearnerKilledError(Exception):
    """Ends the training loop at once."""


class Actor:
    """One process: what actor_modes.py does with observations and actions."""

    def __init__(self, world, name, start_id):
        self.world, self.name = world, name
        self.asking = Asking(SimpleNamespace(steps=world.steps), world.env.env_id,
                             batch=2, start_id=start_id)
        self.learner, self.requested, self.answer = '', None, None
        self.is_connected, self.answered_at = True, -1.0

    @property
    def start_id(self):
        return self.asking.start_id

    def on_policy(self, learner):
        if learner != self.learner:
            self.learner, self.requested, self.asking.whole = learner, None, True

    def on_answer(self, learner, answer):
        if learner == self.learner and answer.request.step == self.asking.actor.step:
            self.answer = answer

    def act(self):
        answer, self.answer = self.answer, None
        if answer is not None:
            self.asking.take(answer)
            self.requested, self.answered_at = None, self.world.now
        now = self.world.now
        if self.learner and (self.requested is None or now - self.requested > RETRY_S):
            self.asking.whole |= self.requested is not None
            self.requested = now
            self.world.send(self, None, self.learner, dataclasses.replace(
                self.asking.request(), actor_id=self.name))


class World:
    """Actors, a learner with its trainer, and the network between them, in steps of time."""

    def __init__(self, rng):
        self.rng, self.now = rng, 0.0
        self.config = TrainConfig(
            network='mlp', hidden_size=4, unroll_length=int(rng.integers(1, 4)),
            batch_size=int(rng.integers(1, 4)), total_steps=10**9, inference='learner',
            synchronous=True)
        self.env = EnvConfig(env_id=str(rng.choice(ENVIRONMENTS)))
        self.spaces = factory.spaces(self.env)
        self.frames = factory.frames_per_observation(self.env)
        self.steps = StepSchema(self.spaces[0], self.frames)
        self.chances = {'drop': 0.0, 'duplicate': 0.0, 'reorder': 0.0}
        # (due, actor that sends or receives, its answer or None, learner, request or None).
        self.network = []
        self.starts, self.learners, self.operations = 0, 0, 0
        self.ended, self.took, self.updates = None, 0.0, 0
        self.stop = threading.Event()
        self.names = [f'actor{i}' for i in range(int(rng.integers(1, 5)))]
        self.actors = {}
        self.start_actors()

    def start_actors(self):
        for name in self.names:
            if name not in self.actors:
                self.starts += 1
                self.actors[name] = Actor(self, name, self.starts)
                if self.learners:
                    self.actors[name].on_policy(self.learner_id)

    def train(self):
        """Run learners one after the other until the end."""
        while not self.stop.is_set():
            self.learners += 1
            self.learner_id, self.learned = f'learner{self.learners}', set()
            self.learner = Learner(self.config, *self.spaces, self.frames)
            self.learner.make_batch, self.learner.learn = self.make_batch, self.update
            self.flow_stats, self.unrolls = FlowStats(forgets_silent=False), []
            self.central = CentralInference(
                self.learner.copy_policy(), self.learner.schema, self.steps, self.flow_stats,
                self.config.credit, synchronous=True)
            trainer = Trainer(
                self.learner, None, {}, inbox=self, flow_stats=self.flow_stats,
                publish=self.publish, log=lambda line: None, num_actors=len(self.names),
                stall_timeout=STALL_S, clock=lambda: self.now)
            for actor in self.actors.values():
                if actor.is_connected:
                    actor.on_policy(self.learner_id)
            try:
                trainer.run(self.stop)
            except LearnerKilledError:
                continue

    def make_batch(self, unrolls):
        found = {(each.start_id, each.sequence) for each in unrolls}
        assert len(found) == len(unrolls)
        assert not found & self.learned, 'learned twice'
        self.learned |= found
        return found

    def update(self, batch):
        """Stand for an update, whose result does not matter here."""
        self.learner.version += 1
        self.learner.agent_steps += len(batch)
        self.updates += 1
        return {}

    def publish(self):
        self.serve([])  # as the thread that looks for credit may at any time
        self.central.load(self.learner.weights(), self.learner.version)

    def get(self, timeout):
        """Let time pass; return the next unroll, as the inference service does."""
        deadline = self.now + timeout
        while not self.unrolls:
            if self.now >= deadline:
                raise queue.Empty
            if self.operations < OPERATIONS:
                self.operate()
            else:
                self.finish()
            self.step()
        unroll = self.unrolls.pop(0)
        self.flow_stats.arrive(unroll.actor_id, unroll.start_id, unroll.sequence)
        return unroll

    def send(self, actor, answer, learner, request):
        if not actor.is_connected or self.rng.random() < self.chances['drop']:
            return
        for _ in range(1 + (self.rng.random() < self.chances['duplicate'])):
            late = self.rng.random() < self.chances['reorder']
            due = self.now + (self.rng.uniform(0.0, 3.0) if late else 0.0)
            self.network.append((due, actor, answer, learner, request))

    def step(self):
        self.now += STEP_S
        due = [each for each in self.network if each[0] <= self.now and each[1].is_connected]
        self.network = [each for each in self.network if each[0] > self.now]
        requests = []
        for _, actor, answer, learner, request in due:
            if answer is not None:
                actor.on_answer(learner, answer)
            elif learner == self.learner_id:
                self.steps.check(request.arrays)
                requests.append((actor, request))
        self.serve(requests)
        for actor in self.actors.values():
            actor.act()

    def serve(self, requests):
        answers, unrolls = self.central.serve(
            [request for _, request in requests], lambda request, error: None)
        self.unrolls += unrolls
        living = {actor.start_id: actor for actor in self.actors.values()}
        for answer in answers:
            if (actor := living.get(answer.request.start_id)) is not None:
                self.send(actor, answer, self.learner_id, None)
        for start_id, session in self.central._sessions.items():
            used = sum(key == start_id for key, _ in self.learned)
            assert session.sequence - used <= self.config.credit, 'more than its credit'

    def operate(self):
        self.operations += 1
        rng, kinds = self.rng, list(KINDS)
        kind = kinds[rng.choice(len(kinds), p=[each / sum(KINDS.values())
                                               for each in KINDS.values()])]
        name = str(rng.choice(self.names))
        actor = self.actors.get(name)
        for _ in range(int(rng.integers(1, 10))):
            self.step()
        if kind in self.chances:
            self.chances[kind] = rng.choice([0.1, 0.5, 1.0])
        elif kind == 'clean':
            self.chances = dict.fromkeys(self.chances, 0.0)
        elif kind in ('part', 'heal') and actor is not None:
            self.connect(actor, kind == 'heal')
        elif kind in ('kill actor', 'restart actor'):
            self.actors.pop(name, None)
            if kind == 'restart actor':
                self.start_actors()
        elif kind == 'start actors':
            self.start_actors()
        elif kind == 'restart learner':
            raise LearnerKilledError

    def connect(self, actor, connected):
        if connected and not actor.is_connected:
            # The learner's settings are latched.
            actor.on_policy(self.learner_id)
        actor.is_connected = connected

    def finish(self):
        """End the faults; end the run once every actor is answered, in two time-outs."""
        if self.ended is None:
            self.ended = self.now
            self.chances = dict.fromkeys(self.chances, 0.0)
            # Those that are gone may be gone for good.
            if not self.actors or self.rng.random() < 0.5:
                self.start_actors()
            for actor in self.actors.values():
                self.connect(actor, True)
            self.updates = 0
        self.took = self.now - self.ended
        silent = [actor.name for actor in self.actors.values() if actor.answered_at <= self.ended]
        if not silent and self.updates >= 2:
            self.stop.set()
        assert self.took <= 2 * STALL_S, f'{silent} not answered, {self.updates} updates'


@pytest.mark.fault_row(
    'the same with central inference, synchronous, many restarts of actors',
    'every living actor answered', reduced=200, full=200)
def test_every_living_actor_is_answered_with_central_inference(trials):
    torch.set_num_threads(1)

    def live(index, rng):
        world = World(rng)
        try:
            world.train()
        finally:
            for actor in world.actors.values():
                actor.asking.actor.envs.close()
        return {'all answered (s)': world.took, 'starts': world.starts}

    trials.run(live)

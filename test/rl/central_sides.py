"""Central inference with no wire between: the learner's side, the actor's, and an actor alone."""

import dataclasses

from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.remote_actor import RemoteActor, StepSchema
from vdl_ros.rl.acting.torch_actor import TorchActor
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.learning.central_inference import CentralInference, Request
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.policy.policy import make_policy
from vdl_ros.rl.settings import TrainConfig

STEPS = 5
TRAIN = TrainConfig(network='mlp', hidden_size=4)


def make_envs(env_id, seed, batch):
    return factory.make(EnvConfig(env_id=env_id), seed, num_envs=batch)


class Learner:
    """The learner's side: inference, its unrolls and its errors."""

    def __init__(self, env_id, max_in_flight=1000, own=None, more=None, **train):
        config = EnvConfig(env_id=env_id)
        spaces = factory.spaces(config)
        frames = factory.frames_per_observation(config)
        self.policy = make_policy(dataclasses.replace(TRAIN, **train), *spaces, own)
        self.schema = UnrollSchema(*spaces, STEPS, frames, self.policy.state_size)
        self.steps = StepSchema(spaces[0], frames)
        self.flow_stats, self.unrolls, self.refused = FlowStats(), [], []
        self.central = CentralInference(
            self.policy, self.schema, self.steps, self.flow_stats, max_in_flight, **(more or {}))

    def serve(self, *requests):
        for request in requests:
            self.steps.check(request.arrays)
        answers, unrolls = self.central.serve(
            requests, lambda request, error: self.refused.append(str(error)))
        for unroll in unrolls:
            self.flow_stats.arrive(unroll.actor_id, unroll.start_id, unroll.sequence)
        self.unrolls += unrolls
        return answers

    def use(self, unroll):
        self.flow_stats.use(unroll.start_id, 0)


class Asking:
    """The actor's side: sends observations and takes the returned actions."""

    def __init__(self, learner, env_id, seed=4, batch=3, start_id=1):
        self.actor = RemoteActor(make_envs(env_id, seed, batch), learner.steps, seed)
        self.start_id, self.whole = start_id, True

    def request(self):
        return Request(f'actor{self.start_id}', self.start_id, self.actor.step,
                       self.actor.observe(whole=self.whole), num_bytes=7)

    def take(self, answer):
        assert answer.request.start_id == self.start_id
        assert answer.request.step == self.actor.step
        self.whole = False
        return self.actor.take(answer.actions)


def go_on(learner, asking, steps):
    for _ in range(steps):
        answer, = learner.serve(asking.request())
        asking.take(answer)


def local_unrolls(env_id, count, seed=4, batch=3, policy=None, **more):
    """Return the unrolls of an actor with local inference, by ``policy`` if given."""
    envs = make_envs(env_id, seed, batch)
    learner = Learner(env_id)
    schema = learner.schema
    if policy is not None:
        schema = UnrollSchema(envs.single_observation_space, envs.single_action_space, STEPS,
                              schema.frames_per_observation, policy.state_size)
    actor = TorchActor(envs, policy or learner.policy, schema, seed, **more)
    return [actor.unroll()[0] for _ in range(count)]

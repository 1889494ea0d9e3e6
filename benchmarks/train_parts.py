"""One part of a training, alone on one core with one thread: what an agent step costs.

Arguments: PART SECONDS SETTINGS. PART is ``step`` (the environments, random actions), ``infer``
(a policy chooses actions, as in an actor) or ``learn`` (an update from the batch of a run,
assembled as in a learner); SETTINGS is a JSON object. Prints one JSON object:
``seconds_per_step``, and ``parameters`` of the network. Steps that only reset an environment take
time, but do not count.
"""

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.env_measure import frames_per_s
from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.common.settings import select
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.rl.acting.actor import Actor, EnvStepper
from vdl_ros.rl.acting.make_actor import make_actor
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import TrainConfig, exploration_schedule, make_algorithm_config

_WARM_UP = 0.25  # of the measured seconds, before them
_ACTIONS = 256


class _Part:
    """Environments and a learner of a run; each method prepares one measurement."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        env = select(EnvConfig, settings)
        # Updates repeat one batch: a learning rate of 0 keeps the weights.
        self.train = dataclasses.replace(select(TrainConfig, settings), learning_rate=0.0)
        self.envs = factory.make(env, self.train.seed)
        spaces = self.envs.single_observation_space, self.envs.single_action_space
        self._frames = factory.frames_per_observation(env)
        self._algorithm = make_algorithm_config(self.train, settings)
        self.learner = Learner(self.train, *spaces, self._frames, algorithm_config=self._algorithm)

    def _actor(self) -> Actor:
        actor = make_actor(
            self.envs, self.train, self._algorithm, self._frames, seed=self.train.seed,
            timer=ThreadTimer(), threads=1,
            exploration=exploration_schedule(self._algorithm, 'actor', self.train.freeze))
        actor.load(self.learner.weights(), 0)
        return actor

    def step(self) -> Callable[[], int]:
        stepper = EnvStepper(self.envs, self.train.seed)
        space = self.envs.action_space
        space.seed(self.train.seed)
        actions = itertools.cycle([space.sample() for _ in range(_ACTIONS)])
        return lambda: int(np.count_nonzero(~stepper.step(next(actions)).is_reset))

    def infer(self) -> Callable[[], int]:
        actor = self._actor()
        stepper = EnvStepper(self.envs, self.train.seed)
        observations, is_reset = stepper.observation, stepper.is_reset

        def once() -> int:
            with torch.inference_mode():
                actor.choose(observations, is_reset)
            return len(observations)
        return once

    def learn(self) -> Callable[[], int]:
        actor, learner = self._actor(), self.learner
        unrolls = [Unroll(actor.unroll()[0], 'actor', 0, sequence, 0)
                   for sequence in range(self.train.batch_size)]

        def once() -> int:
            before = learner.agent_steps
            learner.update(unrolls)
            return learner.agent_steps - before
        return once


def main() -> None:
    # Before anything starts a thread; the last core, since the first has more interrupts.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    part, seconds, settings = sys.argv[1:]
    made = _Part(json.loads(settings))
    try:
        speed = frames_per_s(getattr(made, part)(), float(seconds), warm_up=_WARM_UP)
    finally:
        made.envs.close()
    print(json.dumps({'seconds_per_step': 1.0 / speed, 'parameters': sum(
        each.numel() for each in made.learner.policy.parameters())}))

"""A session of several agents in one process, without ROS.

``python -m vdl_ros.multi_agent_training FILE --run_dir FOLDER``; recipes/agents_file.py has the
file. Each agent is a learner with a run of its own, FOLDER/AGENT, and each (agent, environment) an
actor. In a world of several bodies the actors step together. An agent that has learned all its
steps goes on acting with its last policy; an environment is done when all its agents are, and the
session when all environments are. With one thread and one seed it is deterministic.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import shutil
import signal
import sys
import threading
import zlib
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from vdl_ros.common.command_line import (
    EXIT_BAD_INPUT,
    OneLineParser,
    set_by_signals,
    signal_at_death_of,
    whole_number,
)
from vdl_ros.common.metrics import TRAINING, ThreadTimer
from vdl_ros.common.settings import SettingError, as_dict, select
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import VectorEnvironment, seeds_for
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.envs.worlds import is_world
from vdl_ros.play.evaluator import LocalEvaluator, PolicyEvaluator
from vdl_ros.recipes.agents_file import AgentsFile, agents_of_world, read_agents_file
from vdl_ros.rl.acting.actor import Actor, SharedActors, StepTogether
from vdl_ros.rl.acting.make_actor import make_actor
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.learning.progress import Callbacks
from vdl_ros.rl.learning.trainer import NOT_FINITE, Trainer
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.settings import TrainConfig, exploration_schedule, make_algorithm_config, verify


class _Queue(deque[Unroll]):
    """Unrolls that wait for the trainer, which never waits for them."""

    def get(self, timeout: float) -> Unroll:
        """Return the next unroll; queue.Empty if there is none."""
        if not self:
            raise queue.Empty
        return self.popleft()


class _Agent:
    """A learner with its run and its actors; ``reason`` says why it is done, or is empty.

    Args:
        settings: of its learning and of its first environment.
        envs: vector environments of its bodies, by number of the environment.
        init: checkpoint with its first weights; empty: none.
    """

    def __init__(
        self, name: str, settings: Mapping[str, object], seed: int,
        envs: Mapping[int, VectorEnvironment], folder: Path, init: str, stop: threading.Event,
    ) -> None:
        self.name, self.reason, self.evaluations = name, '', None
        env, config = select(EnvConfig, settings), select(TrainConfig, {**settings, 'seed': seed})
        algorithm = make_algorithm_config(config, settings)
        verify(config, algorithm)
        first = next(iter(envs.values()))
        spaces = first.single_observation_space, first.single_action_space
        for number, each in envs.items():
            if (each.single_observation_space, each.single_action_space) != spaces:
                raise SettingError(
                    f'agent {name}: environment {number} with {each.single_observation_space}, '
                    f'{each.single_action_space} differs from its first one with {spaces[0]}, '
                    f'{spaces[1]}: give each an agent')
        timer = ThreadTimer()
        self.learner = Learner(config, *spaces, factory.frames_per_observation(env), timer,
                               algorithm_config=algorithm, init=init)
        self._flow_stats, self._queue = FlowStats(), _Queue()
        self.actors: dict[int, Actor] = {}
        for number, each in envs.items():
            self.actors[number] = make_actor(
                each, config, algorithm, factory.frames_per_observation(env), seed=seed,
                timer=timer, threads=1, stream=zlib.crc32(f'{name} {number}'.encode()),
                exploration=exploration_schedule(algorithm, f'env_{number}', config.freeze))
        self._sequences = dict.fromkeys(envs, 0)
        described = as_dict(env, config, algorithm)
        evaluator = None
        if config.eval_every:
            self.evaluations = PolicyEvaluator(described)
            evaluator = LocalEvaluator(self.evaluations, stop)
        resume = (folder / 'checkpoint.pt').is_file()
        if not resume:
            # Ended before its first checkpoint: nothing of it can be used.
            shutil.rmtree(folder, ignore_errors=True)

        def say(text: str) -> None:
            print(f'{name}: {text}')

        self._trainer = Trainer(
            self.learner, self._queue, self._flow_stats, RunFolder(folder, resume=resume),
            described | {'init': init} | factory.describe(env), RunConfig(num_actors=1),
            Callbacks(log=say, warn=say), evaluator=evaluator, timers={TRAINING: timer})
        self._iterations: Generator[None, None, str] = self._trainer.iterations(stop)
        self._iterate()
        for number in envs:
            self._load(number)

    def _iterate(self) -> None:
        """Run the training loop once, and again while unrolls wait."""
        while not self.reason:
            try:
                next(self._iterations)
            except StopIteration as end:
                self.reason = str(end.value)
            if not self._queue:
                return

    def _load(self, env: int) -> None:
        actor, learner = self.actors[env], self.learner
        if actor.policy_version != learner.version:
            actor.load(learner.weights(), learner.version, learner.agent_steps)

    def finish_unroll(self, env: int) -> None:
        """Learn from the unroll that an actor has recorded, and give it the newest policy."""
        version = self.actors[env].policy_version
        arrays, _ = self.actors[env].finish()
        if self.reason:
            return
        source, sequence = f'env_{env}', self._sequences[env]
        self._flow_stats.arrive(source, env, sequence)
        self._sequences[env] += 1
        self._queue.append(Unroll(arrays, source, env, sequence, version))
        self._iterate()
        self._load(env)

    def interrupt(self) -> None:
        """End the training, once ``stop`` is set."""
        while not self.reason:
            self._iterate()

    def close(self) -> None:
        """Close the environments of its evaluations."""
        if self.evaluations is not None:
            self.evaluations.close()


def _step_one(env: VectorEnvironment) -> StepTogether:
    return lambda actions: [env.step(actions[0])]


def train(
    file: AgentsFile, run_dir: Path, stop: threading.Event, *, seed: int = 1,
    modules: EnvModulesConfig | None = None,
) -> dict[str, str]:
    """Run a session until all its environments are done; go on with the one in ``run_dir``.

    Returns by agent why its run ended, see :meth:`Trainer.run`. ``modules``, which register
    environments, are imported.

    Raises:
        ValueError: settings, bodies, spaces, a module, a folder or a checkpoint that cannot be
            used.
    """
    import_modules(modules or EnvModulesConfig())
    torch.set_num_threads(1)
    names = list(file.agents)
    seeds = [seed, *seeds_for(seed, len(names) - 1)]
    with contextlib.ExitStack() as cleanup:
        # By agent and number of the environment.
        envs: dict[tuple[int, int], VectorEnvironment] = {}
        bodies: dict[tuple[int, int], str] = {}
        together = []
        for number in range(len(file.envs)):
            for share, step in _make_envs(file, number, seeds, cleanup):
                together.append((number, list(share), step))
                for index, (env, its_bodies) in share.items():
                    envs[index, number], bodies[index, number] = env, its_bodies
        agents = []
        for index, name in enumerate(names):
            its_envs = file.envs_of(index)
            first = its_envs[0]
            settings = file.resolved(index) | {
                'bodies': bodies[index, first],
                **({} if is_world(str(file.envs[first].get('env_id'))) else
                   {'num_envs': file.count(index, first)})}
            agents.append(_Agent(
                name, settings, seeds[index], {each: envs[index, each] for each in its_envs},
                run_dir / name, str(file.agents[name].get('init', '')), stop))
            cleanup.callback(agents[-1].close)
        groups = [(number, [agents[each] for each in indices], SharedActors(
            [agents[each].actors[number] for each in indices], step))
            for number, indices, step in together]
        _run(groups, agents, stop)
        return {agent.name: agent.reason for agent in agents}


def _make_envs(
    file: AgentsFile, number: int, seeds: Sequence[int], cleanup: contextlib.ExitStack,
) -> Iterator[tuple[dict[int, tuple[VectorEnvironment, str]], StepTogether]]:
    """Make an environment for its agents: a world for all, or copies for each.

    Yields the environment and its bodies by agent, and what steps them together.
    """
    config = select(EnvConfig, file.envs[number])
    indices = file.agents_in(number)
    if not is_world(config.env_id):
        for index in indices:
            env = factory.make(config, seeds[index], num_envs=file.count(index, number))
            cleanup.callback(env.close)
            yield {index: (env, '')}, _step_one(env)
    elif indices:
        shares = agents_of_world(config.env_id, factory.bodies(config),
                                 [file.count(index, number) for index in indices])
        # The same seed for all: each resets the world, which happens once.
        shared = factory.make_shared(config, seeds[0], shares)
        cleanup.callback(shared.close)
        yield {index: (view, ','.join(share)) for index, view, share
               in zip(indices, shared.views, shares, strict=True)}, shared.step


def _run(
    groups: Sequence[tuple[int, list[_Agent], SharedActors]], agents: Sequence[_Agent],
    stop: threading.Event,
) -> None:
    """Step the environments in turn until all are done, or ``stop`` is set."""
    waiting = [(env, members, shared) for env, members, shared in groups
               if any(not each.reason for each in members)]
    while waiting and not stop.is_set():
        for env, members, shared in waiting:
            # Until each agent has learned once.
            missing = set(range(len(members)))
            while missing and not stop.is_set():
                for index in shared.step():
                    members[index].finish_unroll(env)
                    missing.discard(index)
        if any(each.reason == NOT_FINITE for each in agents):
            stop.set()
        waiting = [each for each in waiting if any(not agent.reason for agent in each[1])]
    for agent in agents:
        agent.interrupt()


def main(args: Sequence[str] | None = None) -> int:
    """Run a session from the command line."""
    parser = OneLineParser(
        prog='python -m vdl_ros.multi_agent_training', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('file', type=Path, metavar='FILE', help='agents, environments, bodies')
    parser.add_argument('--run_dir', type=Path, required=True,
                        help='folder of the session; one that is there goes on')
    parser.add_argument('--seed', type=whole_number(0, 2**31 - 1), default=1, help='[1]')
    parser.add_argument('--env_modules', default='', help='modules that register environments')
    parser.add_argument('--parent', type=int, metavar='PID',
                        help='process that starts this one, and with whose death it ends')
    options = parser.parse_args(args)
    stop = threading.Event()
    set_by_signals(stop, signal.SIGINT, signal.SIGTERM)
    if options.parent:
        signal_at_death_of(options.parent, signal.SIGTERM)
    try:
        import_modules(EnvModulesConfig(env_modules=options.env_modules))
        reasons = train(read_agents_file(options.file), options.run_dir, stop, seed=options.seed)
    except (ValueError, OSError) as error:
        print(f'multi_agent_training: {error}', file=sys.stderr)
        return EXIT_BAD_INPUT
    for name, reason in reasons.items():
        print(f'{name}: ended by {reason}; written to {options.run_dir / name}')
    return 1 if NOT_FINITE in reasons.values() else 0


if __name__ == '__main__':
    sys.exit(main())

"""A session of several agents in one process, without ROS.

``python -m vdl_ros.multi_agent_training FILE --run_dir FOLDER``; recipes/agents_file.py has the
file. Each agent is a learner with a run of its own, FOLDER/AGENT, and each (agent, environment) an
actor. In a world of several bodies the actors step together. An agent that has learned all its
steps goes on acting with its last policy; an environment is done when all its agents are, and the
session when all environments are. With one thread and one seed it is deterministic.
"""

import faulthandler

from vdl_ros import begin_program

if __name__ == '__main__':
    # A crash in native code of an environment or a library.
    faulthandler.enable(all_threads=False)
    begin_program('multi_agent_training')

import argparse
import contextlib
import queue
import shutil
import sys
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from vdl_ros.common.children import (
    MAKING_S,
    SAVING_S,
    ending_within,
    run_program,
    saving,
    take_mark,
)
from vdl_ros.common.command_line import (
    EXIT_DISK,
    OneLineParser,
    say,
    status_of,
    stop_on_signals,
    whole_number,
)
from vdl_ros.common.files import LAUNCH_FILE, lock_folder
from vdl_ros.common.memory import named_lack_of_memory
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
from vdl_ros.rl.learning.reporting import NOT_SAVED, ended
from vdl_ros.rl.learning.trainer import NOT_FINITE, Trainer
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder import RunFolder
from vdl_ros.rl.settings import (
    BcConfig,
    SacConfig,
    TrainConfig,
    exploration_schedule,
    make_algorithm_config,
    verify,
)


class _Agent:
    """A learner with its run and its actors; ``reason`` says why it is done, or is empty.

    ``settings`` are of its learning and of its first environment, ``envs`` by their numbers, and
    ``acting_seed`` is of its actors.
    """

    def __init__(
        self, name: str, settings: Mapping[str, object], envs: Mapping[int, VectorEnvironment],
        acting_seed: int, folder: Path, init: str, stop: threading.Event,
        cleanup: contextlib.ExitStack,
    ) -> None:
        self.name, self.reason = name, ''
        env, config = select(EnvConfig, settings), select(TrainConfig, settings)
        algorithm = make_algorithm_config(config, settings)
        verify(config, algorithm)
        if isinstance(algorithm, BcConfig) or (
                isinstance(algorithm, SacConfig) and algorithm.demonstrations):
            raise SettingError(f'agent {name}: demonstrations are not allowed with several agents '
                               'in one process')
        first = next(iter(envs.values()))
        spaces = first.single_observation_space, first.single_action_space
        for number, each in envs.items():
            if (each.single_observation_space, each.single_action_space) != spaces:
                raise SettingError(
                    f'agent {name}: environment {number} with {each.single_observation_space}, '
                    f'{each.single_action_space} differs from its first one with {spaces[0]}, '
                    f'{spaces[1]}: give each an agent')
        timer, frames = ThreadTimer(), factory.frames_per_observation(env)
        self._learner = Learner(
            config, *spaces, frames, timer, algorithm_config=algorithm, init=init)
        self.actors: dict[int, Actor] = {number: make_actor(
            each, config, algorithm, frames, seed=acting_seed, timer=timer, threads=1,
            stream=zlib.crc32(f'{name} {number}'.encode()),
            exploration=exploration_schedule(algorithm, f'env_{number}', config.freeze))
            for number, each in envs.items()}
        self._flow_stats, self._sequences = FlowStats(), dict.fromkeys(envs, 0)
        # Wait for the trainer, which never waits for them.
        self._unrolls: deque[Unroll] = deque()
        described = as_dict(env, config, algorithm)
        evaluator = None
        if config.eval_every:
            policies = PolicyEvaluator(described)
            cleanup.callback(policies.close)
            evaluator = LocalEvaluator(policies, stop)
        resume = (folder / 'checkpoint.pt').is_file()
        if not resume and (folder / LAUNCH_FILE).is_file():
            # Ended before its first checkpoint: nothing of it can be used.
            shutil.rmtree(folder, ignore_errors=True)

        def log(text: str) -> None:
            say(f'{name}: {text}')

        self.trainer = Trainer(
            self._learner, self, self._flow_stats, RunFolder(folder, resume=resume),
            described | {'init': init} | factory.describe(env), RunConfig(num_actors=1),
            Callbacks(log=log, warn=log, progress=lambda: next(filter(None, (
                each.progress() for each in self.actors.values())), '')),
            evaluator=evaluator, timers={TRAINING: timer})
        self._iterations = self.trainer.iterations(stop)
        self._iterate()
        for number in envs:
            self._load(number)

    def get(self, timeout: float) -> Unroll:
        if not self._unrolls:
            raise queue.Empty
        return self._unrolls.popleft()

    def _iterate(self) -> None:
        """Run the training loop once, and again while unrolls wait."""
        while not self.reason:
            try:
                next(self._iterations)
            except StopIteration as end:
                self.reason = str(end.value)
            if not self._unrolls:
                return

    def _load(self, env: int) -> None:
        actor, learner = self.actors[env], self._learner
        if actor.policy_version != learner.version:
            actor.load(learner.weights(), learner.version, learner.agent_steps)

    def finish_unroll(self, env: int) -> None:
        """Learn from the unroll that an actor has recorded, and give it the newest policy."""
        actor = self.actors[env]
        arrays, _ = actor.finish()
        if self.reason:
            return
        source, sequence = f'env_{env}', self._sequences[env]
        self._flow_stats.arrive(source, env, sequence)
        self._sequences[env] += 1
        self._unrolls.append(Unroll(arrays, source, env, sequence, actor.policy_version))
        self._iterate()
        self._load(env)

    def interrupt(self) -> None:
        """End the training, once ``stop`` is set."""
        while not self.reason:
            self._iterate()


def train(
    file: AgentsFile, run_dir: Path, stop: threading.Event, *, seed: int = 1,
) -> dict[str, str]:
    """Run a session until all its environments are done; go on with the one in ``run_dir``.

    Returns by agent why its run ended, see :meth:`Trainer.run`. ValueError: settings, bodies,
    spaces, a folder or a checkpoint cannot be used.
    """
    torch.set_num_threads(1)
    names = list(file.agents)
    seeds = [seed, *seeds_for(seed, len(names) - 1)]
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(lock_folder(run_dir))
        # Not the first episodes of the session again.
        steps = sum(int(load_checkpoint(each)['learner']['agent_steps']) for each in (
            run_dir / name / 'checkpoint.pt' for name in names) if each.is_file())
        acting_seeds = [(each + 1_000_003 * steps) % 2**31 for each in seeds]
        together = [(number, share, step) for number in range(len(file.envs))
                    for share, step in _make_envs(file, number, acting_seeds, cleanup)]
        agents = []
        for index, name in enumerate(names):
            own = {number: share[index] for number, share, _ in together if index in share}
            _, of_first = own[min(own)]
            agents.append(_Agent(
                name, file.resolved(index) | of_first | {'seed': seeds[index]},
                {number: env for number, (env, _) in own.items()}, acting_seeds[index],
                run_dir / name, str(file.agents[name].get('init', '')), stop, cleanup))
        groups = [(number, [agents[each] for each in share], SharedActors(
            [agents[each].actors[number] for each in share], step))
            for number, share, step in together]

        def give_up() -> int | None:
            for agent in agents:
                agent.reason = agent.reason or agent.trainer.give_up(stop)
            tell()
            return EXIT_DISK if NOT_SAVED in {each.reason for each in agents} else None

        def tell() -> None:
            for agent in agents:
                if agent.reason:
                    say(f'{agent.name}: {ended(agent.reason, run_dir / agent.name)}')

        with saving(give_up):
            _run(groups, agents, stop)
        # Before environments are closed, which may never end.
        tell()
        return {agent.name: agent.reason for agent in agents}


def _make_envs(
    file: AgentsFile, number: int, seeds: Sequence[int], cleanup: contextlib.ExitStack,
) -> Iterator[tuple[dict[int, tuple[VectorEnvironment, dict[str, object]]], StepTogether]]:
    """Make an environment for its agents: a world for all, or copies for each.

    Yields the environment and its settings by agent, and what steps them together.
    """
    config = select(EnvConfig, file.envs[number])
    indices = file.agents_in(number)
    if not is_world(config.env_id):
        for index in indices:
            count = file.count(index, number)
            env = factory.make(config, seeds[index], num_envs=count)
            cleanup.callback(env.close)
            yield {index: (env, {'num_envs': count})}, partial(_step_one, env)
    else:
        shares = agents_of_world(config.env_id, factory.bodies(config),
                                 [file.count(index, number) for index in indices])
        # The same seed for all: each resets the world, which happens once.
        shared = factory.make_shared(config, seeds[0], shares)
        cleanup.callback(shared.close)
        yield {index: (view, {'bodies': ','.join(share)}) for index, view, share
               in zip(indices, shared.views, shares, strict=True)}, shared.step


def _step_one(env: VectorEnvironment, actions: Sequence[NDArray[Any]]) -> list[tuple[Any, ...]]:
    return [env.step(actions[0])]


def _run(
    groups: Sequence[tuple[int, list[_Agent], SharedActors]], agents: Sequence[_Agent],
    stop: threading.Event,
) -> None:
    """Step the environments in turn until all are done, or ``stop`` is set.

    All agents are saved, also after an error, of an environment or an agent.
    """
    try:
        while not stop.is_set() and (waiting := [
                each for each in groups if any(not agent.reason for agent in each[1])]):
            for env, members, shared in waiting:
                # Until each agent has learned once.
                missing = set(range(len(members)))
                while missing and not stop.is_set():
                    for index in shared.step():
                        members[index].finish_unroll(env)
                        missing.discard(index)
            if any(each.reason == NOT_FINITE for each in agents):
                stop.set()
    except Exception:
        stop.set()
        raise
    finally:
        for agent in agents:
            agent.interrupt()


def main(args: Sequence[str] | None = None) -> int:
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
    options.run_dir = options.run_dir.absolute()
    stop = stop_on_signals(options.parent)
    try:
        with ending_within(MAKING_S, 'multi_agent_training', stop):
            import_modules(EnvModulesConfig(env_modules=options.env_modules))
        with ending_within(SAVING_S, 'multi_agent_training', stop), named_lack_of_memory({}):
            reasons = train(
                read_agents_file(options.file), options.run_dir, stop, seed=options.seed)
    except (ValueError, OSError) as error:
        say(f'multi_agent_training: {error}', sys.stderr)
        return status_of(error)
    found = reasons.values()
    return 1 if NOT_FINITE in found else EXIT_DISK if NOT_SAVED in found else 0


if __name__ == '__main__':
    take_mark()
    run_program('multi_agent_training', main)

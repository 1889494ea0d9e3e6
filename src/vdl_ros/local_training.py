"""Local training (serial mode): one actor and the learner in one process, without ROS.

``python -m vdl_ros.local_training --env_id CartPole-v1``. For debugging and deterministic tests,
and the baseline of the benchmarks; it uses the same classes as the nodes.
"""

import faulthandler

from vdl_ros import begin_program

if __name__ == '__main__':
    # A crash in native code of an environment or a library.
    faulthandler.enable(all_threads=False)
    begin_program('serial')

import contextlib
import queue
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vdl_ros.attacks.attack_config import NONE, AttackConfig, SurrogateConfig, verify_attack
from vdl_ros.common.children import (
    MAKING_S,
    SAVING_S,
    ending_within,
    run_program,
    saving,
    take_mark,
    telling,
)
from vdl_ros.common.command_line import (
    EXIT_DISK,
    OneLineParser,
    say,
    status_of,
    stop_on_signals,
)
from vdl_ros.common.files import CHECKPOINT, absolute_paths
from vdl_ros.common.memory import named_lack_of_memory
from vdl_ros.common.metrics import TRAINING, ThreadTimer
from vdl_ros.common.quoting import shown
from vdl_ros.common.settings import OLD_NAMES, as_dict, select, settings_of
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.recipes import config_file
from vdl_ros.recipes.config_file import read_config
from vdl_ros.rl.acting.actor import Actor, Interrupted
from vdl_ros.rl.acting.make_actor import make_actor
from vdl_ros.rl.data.unroll import Inbox, Unroll
from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.rl.learning.progress import Callbacks
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig, check_unfinished
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    AlgorithmConfig,
    BcConfig,
    TrainConfig,
    exploration_schedule,
    make_algorithm_config,
    verify,
)

if TYPE_CHECKING:
    from vdl_ros.rl.learning.learner import Learner


class SerialInbox:
    """Runs the actor for one unroll whenever the trainer takes one."""

    def __init__(
        self, actor: Actor, learner: 'Learner', flow_stats: FlowStats, timer: ThreadTimer,
        stop: threading.Event,
    ) -> None:
        self._timer, self._stop = timer, stop
        self._actor, self._learner, self._flow_stats = actor, learner, flow_stats
        self._sequence = 0

    def get(self, timeout: float) -> Unroll:
        learner = self._learner
        if self._actor.policy_version != learner.version:
            with self._timer('receive'):
                self._actor.load(learner.weights(), learner.version, learner.agent_steps)
        try:
            arrays, _ = self._actor.unroll(self._stop)
        except Interrupted:
            raise queue.Empty from None
        unroll = Unroll(arrays, 'serial', 0, self._sequence, self._actor.policy_version)
        self._flow_stats.arrive('serial', 0, self._sequence)
        self._sequence += 1
        return unroll


def train(
    env: EnvConfig, config: TrainConfig, algorithm_config: AlgorithmConfig, run_dir: Path,
    stop: threading.Event, *, resume: bool = False, init: str = '',
    modules: EnvModulesConfig | None = None, attack: AttackConfig | None = None,
    surrogate: SurrogateConfig | None = None, folder: RunFolderConfig | None = None,
) -> str:
    """Train in this process; return why the run ended, see :meth:`Trainer.run`.

    ``init`` is a checkpoint with the first weights of a new run, or ''; ``modules`` are imported.
    ValueError: settings, spaces, a folder or a checkpoint cannot be used.
    """
    # Imported here because PyTorch takes seconds, before which it is said what is trained.
    import torch

    from vdl_ros.attacks.attacked_env import AttackedEnv, attack_environments, warning
    from vdl_ros.demonstrations.loading import demonstrate, demonstration_inbox
    from vdl_ros.play.evaluator import LocalEvaluator, PolicyEvaluator
    from vdl_ros.play.saved_policy import load_surrogate
    from vdl_ros.rl.learning.learner import Learner
    from vdl_ros.rl.learning.reporting import NOT_SAVED, ended
    from vdl_ros.rl.learning.trainer import Trainer
    from vdl_ros.rl.runs.checkpoint import load_checkpoint
    from vdl_ros.rl.runs.run_folder import RunFolder
    modules = modules or EnvModulesConfig()
    attack, surrogate = attack or AttackConfig(), surrogate or SurrogateConfig()
    folder = folder or RunFolderConfig()
    verify(config, algorithm_config)
    config = verify_attack(attack, config)
    torch.set_num_threads(1)
    attacks, seed = attack.adversarial_mode != NONE, config.seed
    if resume and (run_dir / CHECKPOINT).is_file():
        # Not the first episodes of the run again.
        steps = int(load_checkpoint(run_dir / CHECKPOINT)['learner']['agent_steps'])
        seed = (seed + 1_000_003 * steps) % 2**31
    say(f'serial: makes {env.num_envs} x {env.env_id}')
    envs = attack_environments(
        factory.make(env, seed, same_step=not attacks), attack, config, seed,
        load_surrogate(surrogate) if attacks else None)
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(envs.close)
        if text := warning(attack, envs):
            say(text)
        spaces = envs.single_observation_space, envs.single_action_space
        timer = ThreadTimer()
        say('serial: makes the network')
        start = cleanup.enter_context(contextlib.ExitStack())
        start.enter_context(telling('serial: waiting for the first observation'))
        frames = 1 if isinstance(envs, AttackedEnv) else factory.frames_per_observation(env)
        learner = Learner(config, *spaces, frames, timer,
                          algorithm_config=algorithm_config, init=init)
        if text := demonstrate(env, modules, learner):
            say(text)
        flow_stats = FlowStats()
        inbox: Inbox
        calls = Callbacks(log=say, warn=say)
        if isinstance(algorithm_config, BcConfig):
            inbox = demonstration_inbox(
                env, config, algorithm_config, modules, learner, flow_stats)
        else:
            actor = make_actor(
                envs, config, algorithm_config, frames, seed=seed, timer=timer, threads=1,
                exploration=exploration_schedule(algorithm_config, 'serial', config.freeze),
                follow=envs.follow if isinstance(envs, AttackedEnv) else None)
            calls = replace(calls, progress=actor.progress)
            inbox = SerialInbox(actor, learner, flow_stats, timer, stop)
        settings = as_dict(env, modules, config, algorithm_config, attack, surrogate, folder)
        evaluator = None
        if config.eval_every:
            try:
                policies = PolicyEvaluator(settings, surrogate)
            except EnvError as error:
                raise EnvError(f'eval_every: {config.eval_every} makes more environments in this '
                               f'process: {error}') from error
            cleanup.callback(policies.close)
            evaluator = LocalEvaluator(policies, stop)
        trainer = Trainer(
            learner, inbox, flow_stats, RunFolder(run_dir, resume=resume, config=folder),
            settings | {'init': init} | factory.describe(env), RunConfig(num_actors=1),
            calls, evaluator=evaluator, timers={TRAINING: timer})
        start.close()
        say('serial: acts and learns')

        def give_up() -> int | None:
            reason = trainer.give_up(stop)
            if reason:
                say(ended(reason, run_dir))
            return EXIT_DISK if reason == NOT_SAVED else None

        with saving(give_up):
            reason = trainer.run(stop)
        # Before environments are closed, which may never end.
        say(ended(reason, run_dir))
        return reason


def main(args: list[str] | None = None) -> int:
    """Train from the command line; every setting is an option."""
    parser = OneLineParser(prog='python -m vdl_ros.local_training', description=__doc__)
    known = settings_of(EnvConfig, EnvModulesConfig, TrainConfig, *ALGORITHM_SETTINGS.values(),
                        AttackConfig, SurrogateConfig, RunFolderConfig)
    for name, setting in known.items():
        old = [f'--{each}' for each, new in OLD_NAMES.items() if new == name]
        parser.add_argument(f'--{name}', *old, metavar=setting.type.__name__.upper(),
                            help=f'{setting.doc} [{setting.default}]'.replace('%', '%%'))
    parser.add_argument('--run_dir', help='folder of the run [runs/<environment>-serial]')
    parser.add_argument('--resume', help='folder of a run to resume')
    parser.add_argument('--init', help='checkpoint whose weights a new run starts with')
    parser.add_argument('--parent', type=int, metavar='PID',
                        help='process that starts this one, and with whose death it ends')
    parser.add_argument('--config', help='YAML file of settings; options override it')
    given = {name: text for name, text in vars(parser.parse_args(args)).items()
             if text is not None}
    file, parent = given.pop('config', ''), given.pop('parent', None)
    stop = stop_on_signals(parent)
    try:
        in_file = read_config(Path(file)) if file else {}
        in_file, given = absolute_paths(in_file), absolute_paths(given)
        run_dir, resume, init = (
            str(given.pop(name, in_file.get(name, ''))) for name in ('run_dir', 'resume', 'init'))
        of_user = ({name: value for name, value in in_file.items() if name in known}
                   | {name: known[name].parse(text) for name, text in given.items()})
        values = config_file.resolve(
            config_file.settings_of_init(of_user | {'init': init}) | of_user,
            config_file.saved_settings(Path(resume), of_user) if resume else None)
        env, config = select(EnvConfig, values), select(TrainConfig, values)
        if resume:
            check_unfinished(Path(resume), config.total_steps)
        path = Path(resume or run_dir or f'runs/{env.env_id.replace("/", "-")}-serial').absolute()
        algorithm_config = make_algorithm_config(config, values)
        say(f'serial: {config.algorithm} learns {shown(env.env_id)} for '
            f'{config.total_steps:,} steps, into {path}; loads PyTorch')
        modules = select(EnvModulesConfig, values)
        with ending_within(MAKING_S, 'serial', stop):
            import_modules(modules)
        with ending_within(SAVING_S, 'serial', stop), \
                named_lack_of_memory(as_dict(env, config, algorithm_config)):
            reason = train(
                env, config, algorithm_config, path, stop, resume=bool(resume), init=init,
                modules=modules, attack=select(AttackConfig, values),
                surrogate=select(SurrogateConfig, values), folder=select(RunFolderConfig, values))
    except (ValueError, OSError) as error:
        say(f'serial: {error}', sys.stderr)
        return status_of(error)
    from vdl_ros.rl.learning.reporting import NOT_SAVED
    from vdl_ros.rl.learning.trainer import NOT_FINITE
    return {NOT_FINITE: 1, NOT_SAVED: EXIT_DISK}.get(reason, 0)


if __name__ == '__main__':
    take_mark()
    run_program('serial', main)

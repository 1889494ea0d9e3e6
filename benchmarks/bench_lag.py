"""What late actions cost: policies trained with and without a delay, measured at each delay.

Trains a policy without a delay (*naive*), one with each delay, and one whose delay is drawn for
each episode up to the largest, and which observes its last actions (*aware*); then plays episodes
with each of them at each delay. Runs that are there are continued up to ``--steps``.
"""

import argparse
import dataclasses
import itertools
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import report
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.registration import REACH
from vdl_ros.play.saved_policy import SavedPolicy, load_policy
from vdl_ros.rl.acting.evaluation import Evaluation, evaluate

NAIVE, AWARE = 'naive', 'aware'


@dataclasses.dataclass(frozen=True)
class Task:
    """What is learned.

    Attributes:
        rate: steps per second of the environment.
        steps: agent steps of a training.
        observes: whether the aware policy observes its last actions; else its observation has
            them, or the policy a memory.
    """

    env_id: str
    algorithm: str
    rate: float
    steps: int
    observes: bool = True
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def delays(self, trained: str, delays: Sequence[int]) -> dict[str, str]:
        """Return the settings of the delay that ``trained`` names, in ms or by a word."""
        longest = max(delays) / 1000.0
        if trained != AWARE:
            late = 0 if trained == NAIVE else int(trained)
            return {'action_delay': f'{late / 1000.0}'} if late else {}
        # As many as are under way, the one that is chosen next included.
        number = {'observe_last_actions': f'{math.ceil(longest * self.rate) + 1}'}
        return {'random_action_delay': f'{longest}', **(number if self.observes else {})}


TASKS = {
    'reach': Task(REACH, 'ppo', 10.0, 1_500_000, observes=False),
    'pong': Task('ALE/Pong-v5', 'a3c', 15.0, 10_000_000, observes=False,
                 settings={'network': 'universe'}),
    'cartpole': Task('CartPole-v1', 'ppo', 50.0, 300_000)}


def train(name: str, trained: str, seed: int, options: argparse.Namespace) -> Path:
    """Train a policy up to ``options.steps``, unless it is; return its checkpoint."""
    task, folder = TASKS[name], options.runs / f'{name}-{trained}-{seed}'
    if options.init and trained == NAIVE:
        return Path(options.init)
    checkpoint, steps = folder / 'checkpoint.pt', options.steps or task.steps
    if checkpoint.is_file() and load_policy(checkpoint).agent_steps >= steps:
        return checkpoint
    settings = {'env_id': task.env_id, 'algorithm': task.algorithm, 'seed': str(seed),
                'stop_at_return': '1e9', **task.settings,
                **task.delays(trained, options.delays), 'run_dir': str(folder)}
    if options.init:
        settings['init'] = str(options.init)
    if checkpoint.is_file():
        settings = {'resume': str(folder)}
    words = [word for key, value in {**settings, 'total_steps': str(steps)}.items()
             for word in (f'--{key}', value)]
    report.log(f'{folder.name}: training')
    command = [sys.executable, '-m', 'vdl_ros.local_training', *words]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RuntimeError(f'{folder.name}: the training ended with status {done.returncode}')
    return checkpoint


def play(saved: SavedPolicy, delay_ms: int, episodes: int, seed: int) -> Evaluation:
    """Play episodes with the policy's most likely actions, all with the same delay."""
    env: EnvConfig = dataclasses.replace(
        saved.env, action_delay=delay_ms / 1000.0, random_action_delay=0.0, episodic_life=False)
    envs = factory.make(env, seed, num_envs=min(saved.env.num_envs, episodes))
    try:
        return evaluate(envs, saved.act(), episodes, seed)
    finally:
        envs.close()


def arguments() -> argparse.Namespace:
    """Return the options; ValueError for one that is not allowed."""
    parser = report.Parser('bench_lag', __doc__, quick='CartPole, hardly trained, two delays')
    parser.add_argument('--task', choices=tuple(TASKS), help='(reach; quick: cartpole)')
    parser.numbers('--delays', 'of actions, ms', ('0,40,100,200', '0,40'), (0, 10_000))
    parser.numbers('--seeds', 'of the trainings', ('1', '1'), (0, 2**31 - 1))
    parser.number('--steps', int, 'of each training; 0: by task', (0, 4000), (0, 10**12))
    parser.add_argument('--init', type=Path, metavar='CHECKPOINT',
                        help='the naive policy, which the others begin with')
    parser.number('--episodes', int, 'for each figure', (200, 8), (1, 100_000))
    parser.add_argument('--runs', type=Path, default=Path('runs/lag'), metavar='FOLDER',
                        help='folder of the trainings (runs/lag)')
    parser.number('--seed', int, 'of the episodes', (1000, 1000), (0, 2**31 - 1))
    options = parser.complete()
    options.task = options.task or ('cartpole' if options.quick else 'reach')
    return options


def main() -> int:
    """Train, measure, and print a table or one JSON object."""
    return report.run('bench_lag', arguments, _measure_and_deliver)


def _measure_and_deliver(options: argparse.Namespace) -> None:
    # More threads do not pay for such small batches.
    torch.set_num_threads(1)
    name, task = options.task, TASKS[options.task]
    found: list[dict[str, Any]] = []
    names = [NAIVE, *(str(delay) for delay in options.delays if delay), AWARE]
    for seed, trained in itertools.product(options.seeds, names):
        saved = load_policy(train(name, trained, seed, options), env_id=task.env_id)
        for delay in options.delays:
            torch.manual_seed(options.seed)
            played = play(saved, delay, options.episodes, options.seed)
            known = [each.success for each in played.episodes if each.success is not None]
            found.append({
                'trained': trained, 'training_seed': seed, 'delay_ms': delay,
                'agent_steps': saved.agent_steps, 'mean_return': round(played.mean, 3),
                'return_interval': round(played.interval, 3),
                'success': round(statistics.fmean(known), 4) if known else None})
            report.log(f'{trained}, seed {seed}, {delay} ms: {found[-1]["mean_return"]}')
    report.deliver('lag', {
        'task': name, 'env_id': task.env_id, 'algorithm': task.algorithm,
        'episodes': options.episodes, 'seed': options.seed,
        'delays_ms': options.delays, 'figures': found}, options, text)


def text(found: Mapping[str, Any]) -> str:
    """Return the figures as a Markdown table of returns and success."""
    delays: Sequence[int] = found['delays_ms']
    rows: Sequence[Mapping[str, Any]] = found['figures']

    def cell(trained: str, delay: int) -> str:
        each = [row for row in rows if (row['trained'], row['delay_ms']) == (trained, delay)]
        success = [row['success'] for row in each if row['success'] is not None]
        shown = f'{statistics.fmean(row["mean_return"] for row in each):.1f}'
        return shown + (f' · {statistics.fmean(success):.0%}' if success else '')

    names = list(dict.fromkeys(row['trained'] for row in rows))
    steps = {name: min(row['agent_steps'] for row in rows if row['trained'] == name)
             for name in names}
    return '\n'.join([
        f'{found["env_id"]}: mean return of {found["episodes"]} episodes'
        + (' · success' if any(row['success'] is not None for row in rows) else ''), '',
        *report.table(
            ('trained', 'steps', *(f'{delay} ms' for delay in delays)),
            [(name if name in (NAIVE, AWARE) else f'{name} ms', f'{steps[name]:,}',
              *(cell(name, delay) for delay in delays)) for name in names])])

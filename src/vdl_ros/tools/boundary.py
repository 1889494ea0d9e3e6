"""Plots decision boundaries of an attacked policy: ``ros2 run vdl_ros boundary``.

It plays under attack and writes, for each of the first perturbed observations, the actions around
it as .npy, .png and .pdf. Options: ``--help``, docs/attacks.md.

Exit status: 0 if all files were written, else 2.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from vdl_ros.attacks.attack_config import AttackConfig, verify_attack
from vdl_ros.attacks.boundary import boundaries
from vdl_ros.common.command_line import OneLineParser, run_tool, whole_number
from vdl_ros.common.files import from_here, is_unused, lock_folder
from vdl_ros.common.settings import build, settings_of
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import VectorEnvironment
from vdl_ros.envs.env_config import EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.play.saved_policy import load_policy

# Pong's actions that do the same, as rl-attack-vf folds them.
_PONG = {'FIRE': 'NOOP', 'RIGHTFIRE': 'RIGHT', 'LEFTFIRE': 'LEFT'}


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(
        prog='boundary', description='Plot what a policy does around attacked observations: along '
        'the perturbation, and along random noise.')
    add = parser.add_argument
    add('--checkpoint', type=Path, required=True, metavar='FILE', help='with the policy')
    add('--frames', type=whole_number(1, 10_000), default=50, metavar='N',
        help='perturbed observations to plot [50]')
    add('--adversarial_mode', default='fgsm', metavar='MODE', help='the attack [fgsm]')
    add('--adversarial_epsilon', default=str(AttackConfig.adversarial_epsilon), metavar='E',
        help=f'its size [{AttackConfig.adversarial_epsilon}]')
    add('--seed', type=whole_number(0, 2**31 - 1), default=1000, metavar='N', help='[1000]')
    add('--env_modules', default='', metavar='NAMES', help='modules that register environments')
    add('--output', type=Path, default=Path('boundary'), metavar='FOLDER',
        help='a new or empty folder [boundary]')
    options = parser.parse_args(args)
    options.checkpoint, options.output = from_here(options.checkpoint), options.output.absolute()
    return run_tool('boundary', lambda: _plot(options))


def _plot(options: argparse.Namespace) -> None:
    # Imported here because matplotlib takes a second.
    from vdl_ros.attacks.plots import draw_boundary
    names = ('adversarial_mode', 'adversarial_epsilon')
    attack = build(AttackConfig, {
        name: settings_of(AttackConfig)[name].parse(getattr(options, name)) for name in names})
    import_modules(EnvModulesConfig(env_modules=options.env_modules))
    torch.set_num_threads(1)
    saved = load_policy(options.checkpoint)
    verify_attack(attack, saved.train)
    if not is_unused(options.output):
        raise ValueError(f'--output: {options.output} is not empty')
    _lock = lock_folder(options.output)
    envs = factory.make(saved.env, options.seed, num_envs=1)
    try:
        actions = _action_names(envs, saved.env.env_id)
        folded = {actions.index(name): actions.index(other) for name, other in _PONG.items()
                  if name in actions and 'Pong' in saved.env.env_id}
        space = envs.single_observation_space
        channels_last = len(space.shape or ()) == 3 and saved.policy.image_shape != space.shape
        found = boundaries(
            envs, saved.policy, attack, frames=options.frames, seed=options.seed, folded=folded)
        for number, boundary in enumerate(found):
            path = options.output / f'{number:03}'
            np.save(path.with_suffix('.npy'), boundary.actions)
            files = [path.with_suffix(ending) for ending in ('.png', '.pdf')]
            draw_boundary(boundary, actions, files, channels_last=channels_last)
            print(f'{path}: step {boundary.step}, {len(np.unique(boundary.actions))} actions')
    finally:
        envs.close()


def _action_names(envs: VectorEnvironment, env_id: str) -> list[str]:
    if env_id.startswith(factory.ATARI):
        return [each.name for each in envs.unwrapped.ale.get_action_set()]  # type: ignore[attr-defined]
    return [f'action {index}' for index in range(int(getattr(envs.single_action_space, 'n', 0)))]

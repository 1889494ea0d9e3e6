"""Let policies play against each other in a world of several bodies: ``ros2 run vdl_ros match``.

Each argument says who acts for which bodies: BODIES=RUN with the folder or checkpoint of a run, or
BODIES=random, where BODIES is a name or a pattern, such as adversary_*. The world is that of the
first run, or without a run that of --env-id. Prints the return of each body.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from vdl_ros.common.command_line import OneLineParser, run_tool, stop_on_signals, whole_number
from vdl_ros.common.files import checkpoint_file, from_here
from vdl_ros.common.settings import SettingError
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.play.match import Side, play_match
from vdl_ros.play.saved_policy import load_policy

_RANDOM = 'random'


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(prog='match', description=__doc__,
                           formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('sides', nargs='+', metavar='BODIES=RUN')
    add('--env-id', default='', metavar='ID', help='the world, if there is no run')
    add('--episodes', type=whole_number(1, 1_000_000), default=100, metavar='N', help='[100]')
    add('--seed', type=whole_number(0, 2**31 - 1000), default=1, metavar='N', help='[1]')
    add('--deterministic', action='store_true', help='take the most likely actions')
    add('--env-modules', default='', metavar='MODULES',
        help='modules that register worlds, separated by commas')
    options = parser.parse_args(args)
    stop = stop_on_signals()
    torch.set_num_threads(1)

    def play() -> None:
        named = [_named(each) for each in options.sides]
        import_modules(EnvModulesConfig(env_modules=options.env_modules))
        sides = [Side(bodies, None if path is None else load_policy(path))
                 for bodies, path in named]
        worlds = [each.policy.env for each in sides if each.policy is not None]
        worlds += [EnvConfig(env_id=options.env_id)] if options.env_id else []
        if not worlds:
            raise SettingError('--env-id is needed: there is no run that says what world it is')
        for side in sides:
            if side.policy is not None and side.policy.env.env_id != worlds[0].env_id:
                raise SettingError(f'{side.bodies}: {side.policy.env.env_id} is not '
                                   f'{worlds[0].env_id}')
        found = play_match(
            replace(worlds[0], bodies=''), sides, episodes=options.episodes, seed=options.seed,
            deterministic=options.deterministic, stop=stop)
        for name, result in found.items():
            if result.returns:
                print(f'{name}: {len(result.returns)} episodes: mean {result.mean:.2f}, 95 % of '
                      f'the mean +-{result.interval:.2f}, std {result.std:.2f}')

    return run_tool('match', play)


def _named(text: str) -> tuple[str, Path | None]:
    bodies, separator, run = text.partition('=')
    if not bodies or not separator or not run:
        raise SettingError(f'{text!r} is not allowed: BODIES=RUN, or BODIES={_RANDOM}')
    return bodies, None if run == _RANDOM else checkpoint_file(from_here(run))


if __name__ == '__main__':
    sys.exit(main())

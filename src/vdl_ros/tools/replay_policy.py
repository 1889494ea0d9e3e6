"""Compute the decisions in a bag again: ``ros2 run vdl_ros replay_policy --help``.

Not a node: it reads files. Exit status: 0 when all decisions are equal to the bit, 1 when one
differs, 2 after an error.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vdl_ros.common.command_line import OneLineParser, run_tool, say
from vdl_ros.ros.node_settings import policy_file
from vdl_ros.ros.robots.decisions import Difference, Replay, replay

_DIFFERS = 1


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)

    def work() -> int:
        found = replay(options.bag, policy_file(options.policy))
        print(_text(options.bag, found))
        return 0 if found.difference is None else _DIFFERS

    say('loads the policy')
    return run_tool('replay_policy', work)


def _text(bag: Path, found: Replay) -> str:
    what = f'{found.decisions:,} decisions for {found.env_id} by {found.policy}'
    if found.skipped:
        what += f', {found.skipped:,} of them of an episode whose begin is not in the bag'
    if found.difference is None:
        return f'{bag}: {what}: all equal'
    return f'{bag}: {what}: {_of(found.difference)}'


def _of(found: Difference) -> str:
    ages = ', '.join(f'{topic} none' if np.isnan(age) else f'{topic} {age:.3f} s'
                     for topic, age in found.ages.items())
    robot = f' of robot {found.robot}' if found.robot else ''
    return (f'decision {found.step}{robot}, {found.at:.3f} s after the first, differs: '
            f'{found.decided.tolist()} in the bag, {found.computed.tolist()} by the policy; ages '
            f'of its inputs: {ages}')


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='replay_policy', description='Compute every decision of play in a bag again, and '
        'name the first one that differs, with the ages of its inputs.')
    parser.add_argument('bag', type=Path, help='the bag of the black box or of a recorder')
    parser.add_argument('--policy', required=True, metavar='FILE', help='checkpoint, .onnx file '
                        'of export_policy, or name of one in this package')
    return parser

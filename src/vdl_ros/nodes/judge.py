"""Ends the episode of a robot that learns by a person's word (docs/robots.md).

Exit status 1: no episode runs.
"""

import argparse
import sys
from collections.abc import Sequence

from vdl_ros.nodes.confirm import AskNode
from vdl_ros.ros.robots.robot_topics import OUTCOMES


class JudgeNode(AskNode):
    """Calls the service of one outcome."""

    NAME = 'judge'


def main(args: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if args is None else args)
    count = words.index('--ros-args') if '--ros-args' in words else len(words)
    parser = argparse.ArgumentParser(
        prog='judge', description='End the episode of a robot that learns.')
    parser.add_argument('outcome', choices=OUTCOMES, help='discard: it is not learned from')
    outcome = parser.parse_args(words[:count]).outcome
    return JudgeNode.main(words[count:], f'robot/{outcome}')

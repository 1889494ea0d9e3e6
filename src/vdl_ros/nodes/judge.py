"""Ends the episode of a robot that learns by a person's word (docs/robots.md).

Exit status 1: no episode runs.
"""

from collections.abc import Sequence

from vdl_ros.common.command_line import OneLineParser
from vdl_ros.nodes.confirm import AskNode
from vdl_ros.ros.process import split_words
from vdl_ros.ros.robots.robot_topics import OUTCOMES


class JudgeNode(AskNode):
    """Calls the service of one outcome."""

    NAME = 'judge'


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(
        prog='judge', description='End the episode of a robot that learns.')
    parser.add_argument('outcome', choices=OUTCOMES, help='discard: it is not learned from')
    options, words = split_words(parser, args)
    return JudgeNode.main(words, f'robot/{options.outcome}')

"""Export a bag as a data set of LeRobot; ``ros2 run vdl_ros export_dataset --help``.

Not a node: it reads and writes files. See docs/pose.md.

Exit status: 0 when every row was written and verified, 2 after an error, 3 if the disk is full,
130 when interrupted.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import av

from vdl_ros.common.command_line import (
    OneLineParser,
    interrupt_on_signals,
    number,
    run_tool,
    whole_number,
)
from vdl_ros.export.bag_export import export
from vdl_ros.export.messages import ARM, of_contract
from vdl_ros.export.synchronizer import ExportOptions
from vdl_ros.robots.contract_files import find_contract


class ProgressLine:
    """Progress: a line that is updated on a terminal, else one every ten seconds."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._every = 0.2 if self._terminal else 10.0
        self._printed = self._begun = time.monotonic()
        self._what = ''

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._begun = what, now
        if now - self._printed < self._every and done != total:
            return
        self._printed = now
        share = f' of {total} rows ({100 * done // total} %)' if total else ' images'
        rate = done / max(now - self._begun, 1e-6)
        end = '\r' if self._terminal and done != total else '\n'
        print(f'{what} {done}{share}, {rate:.0f}/s    ', end=end, file=sys.stderr, flush=True)


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog='export_dataset',
        description='Export images, joint positions and motor commands of a bag as a data set '
        'of LeRobot (v3.0).')
    parser.add_argument('bag', type=Path, help='folder of the bag, or its .mcap file; or '
                        'the folder of record_episodes, each of whose bags begins an episode')
    parser.add_argument('--output', required=True, type=Path, help='folder to make')
    parser.add_argument('--fps', type=whole_number(1, 1000), default=0,
                        help='rows per second; by default that of the images, rounded')
    parser.add_argument('--gap', type=number(0, 1e6, 's'), default=1.0,
                        help='seconds without an image that end an episode (1)')
    parser.add_argument('--episode-seconds', type=number(0, 1e6, 's'), default=0.0,
                        help='cut episodes at this length (at most 600)')
    parser.add_argument('--resample', action='store_true',
                        help='drop and repeat images where their rate varies; else that is an '
                        'error')
    parser.add_argument('--task', default='',
                        help='what the arm does, in words (that of record_episodes)')
    parser.add_argument('--only-successes', action='store_true',
                        help='leave out episodes that were saved as a failure')
    parser.add_argument('--no-images', action='store_true',
                        help='a row for each message of the joints, instead of each image')
    parser.add_argument('--namespace', default='',
                        help='of the topics, if there are several robots')
    parser.add_argument('--robot', default='',
                        help='the name of a contract of this package, or its file: its features '
                        'are the state, its actions the actions (all joints and motors of the '
                        'OWI-535)')
    return parser.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    options = parse(args)
    interrupt_on_signals()
    return run_tool('export_dataset', lambda: _export(options), options.output)


def _export(options: argparse.Namespace) -> None:
    try:
        topics = of_contract(find_contract(options.robot)) if options.robot else ARM
        found = export(
            options.bag, options.output,
            ExportOptions(options.fps, options.gap, options.episode_seconds, options.resample,
                          options.only_successes, options.task, options.namespace),
            topics.without_images() if options.no_images else topics, ProgressLine())
    except av.FFmpegError as error:
        raise ValueError(str(error)) from error
    for note in found.notes:
        print(note)
    what = 'messages' if options.no_images else 'images'
    lost = found.dropped.total()
    left_out = f'{lost} {what} became no row' if lost else f'all readable {what} have one'
    print(f'{options.output}: {found.images} {what}, {found.rows} rows in {found.episodes} '
          f'episodes at {found.fps} frames/s; {left_out}')

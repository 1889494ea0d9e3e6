"""Compare a data set with LeRobotDataset v3.0: ``ros2 run vdl_ros check_dataset --help``.

Not a node: it reads files. Exit status: 0 without a difference, 1 with, 2 after an error.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vdl_ros.common.command_line import OneLineParser, run_tool
from vdl_ros.common.memory import limited_memory
from vdl_ros.export.lerobot_check import VERSION, check_dataset

_DIFFERS = 1


def main(args: Sequence[str] | None = None) -> int:
    folder = _parser().parse_args(args).folder

    def work() -> int:
        # A column of equal numbers has hardly any bytes in a file, whatever it says of its size.
        with limited_memory(str(folder)):
            found = check_dataset(folder)
        print(*(found.problems or [f'{folder}: {found.rows:,} rows in {found.episodes:,} '
                                   f'episodes: as LeRobotDataset {VERSION}']), sep='\n')
        return _DIFFERS if found.problems else 0

    return run_tool('check_dataset', work)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='check_dataset', description=f'Name what in a data set differs from LeRobotDataset '
        f'{VERSION}, by path.')
    parser.add_argument('folder', type=Path, help='the folder that holds meta, data and videos')
    return parser

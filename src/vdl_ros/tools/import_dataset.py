"""Write a LeRobot data set as bags of a robot; ``ros2 run vdl_ros import_dataset --help``.

Not a node: it reads and writes files. See docs/demonstrations.md.

Exit status: 0 when every row was written, 2 after an error, 3 if the disk is full, 130 when
interrupted.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vdl_ros.common.command_line import OneLineParser, interrupt_on_signals, run_tool
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.ros.robots.dataset_import import import_data_set
from vdl_ros.tools.export_dataset import ProgressLine


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='import_dataset',
        description='Write each episode of a LeRobot data set (v3.0) as a bag of a robot.')
    parser.add_argument('folder', type=Path, help='the folder that holds meta, data and videos')
    parser.add_argument('--robot', required=True,
                        help='the name of a contract of this package, or its file: it says which '
                        'topics have the state, the action and the images')
    parser.add_argument('--output', required=True, type=Path,
                        help='folder to make, with a bag for each episode')
    return parser


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    interrupt_on_signals()

    def work() -> None:
        episodes, rows, left_out = import_data_set(
            options.folder, find_contract(options.robot), options.output,
            partial(ProgressLine(), 'writing'))
        if left_out:
            print(f'left out: {", ".join(left_out)}')
        print(f'{options.output}: {rows} rows in {episodes} episodes')

    return run_tool('import_dataset', work, options.output)

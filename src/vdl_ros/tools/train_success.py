"""Train a classifier of success on recorded episodes: ``ros2 run vdl_ros train_success --help``.

Not a node: it reads and writes files. See docs/robots.md.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from vdl_ros.bags.reader import find_bags, read_labels
from vdl_ros.common.command_line import (
    OneLineParser,
    interrupt_on_signals,
    number,
    number_above_0,
    run_tool,
    say,
    whole_number,
)
from vdl_ros.common.files import atomic_file
from vdl_ros.common.onnx_file import require_onnx
from vdl_ros.demonstrations.success import SuccessConfig, read_episodes, train
from vdl_ros.robots.contract_files import find_contract

# A recall below this is too little.
_LOW = 0.8
# Of an image of which the contract says no size, pixels.
_SIZE = 64, 64


def main(args: Sequence[str] | None = None) -> int:
    options = vars(_parser().parse_args(args))
    folder, output, robot, name = map(options.pop, ('data', 'output', 'robot', 'image'))
    config = SuccessConfig(**options)
    interrupt_on_signals()

    def work() -> None:
        if output.suffix != '.onnx':
            raise ValueError(f'--output: {output} does not end in .onnx')
        if output.exists():
            raise ValueError(f'--output: {output} exists; name another file')
        require_onnx()
        image = find_contract(robot or _robot_of(folder)).image(name)
        if image.size is None:
            image = structs.replace(image, size=_SIZE)
            say(f'the contract says no size of {image.name}: {_SIZE[0]} x {_SIZE[1]} pixels')
        data, counts = train(read_episodes(folder, image, config, say), image, config, say)
        with atomic_file(output) as partial:
            partial.write_bytes(data)
        say(f'pictures of episodes held out: {counts.found} successes found, {counts.missed} '
            f'missed; {counts.right} others told apart, {counts.wrong} taken for success')
        if counts.recall < _LOW:
            say(f'many successes are missed: did the robot rest at its aim for longer than the '
                f'{config.positive_seconds:g} s of --positive-seconds before it was saved?')
        say(f'{output}: precision {counts.precision:.3f}, recall {counts.recall:.3f} at the '
            f'threshold {counts.threshold:.2f}; {len(data) / 1e3:,.0f} kB')

    return run_tool('train_success', work, output)


def _robot_of(folder: Path) -> str:
    """Return the contract of recorded episodes; ValueError: nothing names it."""
    if found := read_labels(find_bags(folder)[0]).robot:
        return found
    raise ValueError(f'--robot: missing: nothing in {folder} names the contract')


def _parser() -> argparse.ArgumentParser:
    default = {field.name: field.default for field in dataclasses.fields(SuccessConfig)}
    parser = OneLineParser(
        prog='train_success', description='Train a network that sees in a picture whether a robot '
        'has succeeded.')
    add = parser.add_argument
    add('--data', type=Path, required=True, metavar='FOLDER', help='the folder of '
        'record_episodes, or one with the folders success and failure of *.png or *.jpg')
    add('--output', type=Path, required=True, metavar='FILE', help='the file to write, *.onnx')
    add('--robot', default='', metavar='NAME', help='the contract that uses it: '
        'FOLDER/NAME.yaml, or one of this package [of the episodes]')
    add('--image', default='', metavar='NAME', help='the image of the contract [the first one]')
    for name, kind, text in (
            ('positive_seconds', number(0, 3600, 's'), 'the end of an episode that was saved as a '
             'success, which shows it'),
            ('unsure_seconds', number(0, 3600, 's'), 'what is left out before that'),
            ('steps', whole_number(1, 10**6), 'steps of the optimizer'),
            ('minutes', number_above_0, 'end them after this time'),
            ('seed', whole_number(0, 2**31 - 1), 'random seed')):
        add('--' + name.replace('_', '-'), type=kind, default=default[name],
            help=f'{text} [{default[name]}]')
    return parser

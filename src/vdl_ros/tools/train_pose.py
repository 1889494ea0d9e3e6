"""Train a pose network on captured frames: ``ros2 run vdl_ros train_pose --help``.

Not a node: it has no topics and takes ordinary options.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from vdl_ros.common.command_line import (
    OneLineParser,
    number,
    run_tool,
    say,
    stop_on_signals,
    whole_number,
)
from vdl_ros.pose.dataset import PoseDataset
from vdl_ros.pose.networks import MODELS
from vdl_ros.pose.training import Trainer, TrainingConfig


def main(args: Sequence[str] | None = None) -> int:
    options = vars(_parser().parse_args(args))
    paths, folder = options.pop('data'), options.pop('output')
    resume, model = options.pop('resume'), options.pop('init')
    stop = stop_on_signals()

    def train() -> None:
        if options['minutes'] and options['epochs'] is None:
            options['epochs'] = 10_000
        config = TrainingConfig(**{
            name: value for name, value in options.items() if value is not None})
        data = PoseDataset(paths)
        say(data.report())
        trainer = Trainer(data, config, folder, resume=resume, init=model, log=say)
        scores = trainer.train(stop)
        if stop.is_set():
            say(f'stopped; continue with --resume --output {folder}')
        elif scores is not None:
            say(f'{folder}/model.pt: the best of {trainer.epoch} epochs')

    return run_tool('train_pose', train)


def _parser() -> argparse.ArgumentParser:
    default = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
    parser = OneLineParser(
        prog='train_pose',
        description='Train a network that estimates camera and joint positions from a picture.')
    add = parser.add_argument
    add('--data', type=Path, nargs='+', required=True, metavar='FOLDER',
        help='captured data sets, or folders of them')
    add('--output', type=Path, required=True, metavar='FOLDER',
        help='folder of the run: checkpoint.pt, model.pt, progress.csv, curve.png, TensorBoard '
        'events')
    add('--model', choices=list(MODELS), help=f'architecture [{default["model"]}]')
    add('--epochs', type=whole_number(1, 10**9), help=f'number of epochs [{default["epochs"]}; '
        'no limit with --minutes]')
    add('--minutes', type=number(0, 1e9),
        help='end after this time, including the time before a resume')
    for name, kind, text in (
            ('batch', whole_number(2, 10**6), 'batch size'),
            ('lr', number(1e-9, 1), 'highest learning rate'),
            ('weight_decay', number(0, 1e9), 'weight decay'),
            ('seed', whole_number(0, 2**31 - 1), 'random seed'),
            ('threads', whole_number(0, 4096), 'threads that compute; 0: PyTorch\'s default')):
        add('--' + name.replace('_', '-'), type=kind, help=f'{text} [{default[name]}]')
    add('--init', type=Path, metavar='FILE',
        help='initial weights: a model file or the folder of a run [random]')
    add('--resume', action='store_true', help='continue the training in --output')
    return parser

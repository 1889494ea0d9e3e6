"""
Train a pose network on captured bags; ``ros2 run vdl_ros train_pose --help`` lists the options.

No node of the graph: it publishes nothing and takes ordinary options.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from vdl_ros.common.stop_signals import set_by_signals
from vdl_ros.pose.data.dataset import PoseDataset
from vdl_ros.pose.networks import MODELS
from vdl_ros.pose.training.training import Trainer
from vdl_ros.pose.training.training_config import TrainingConfig
from vdl_ros.ros.process import EXIT_BAD_INPUT, EXIT_OK


def main(args: Sequence[str] | None = None) -> int:
    """Train, and return the exit status."""
    options = vars(_parser().parse_args(args))
    bags, folder = options.pop('data'), options.pop('output')
    resume, model = options.pop('resume'), options.pop('init')
    stop = threading.Event()
    set_by_signals(stop, signal.SIGINT, signal.SIGTERM)
    try:
        if options['minutes'] and options['epochs'] is None:
            options['epochs'] = 10_000
        config = TrainingConfig(**{
            name: value for name, value in options.items() if value is not None})
        data = PoseDataset(bags)
        _say(data.report())
        trainer = Trainer(data, config, folder, resume=resume, init=model, say=_say)
        scores = trainer.train(stop)
    except (ValueError, OSError) as error:
        print(f'train_pose: {error}', file=sys.stderr)
        return EXIT_BAD_INPUT
    if stop.is_set():
        _say(f'stopped; go on with --resume --output {folder}')
    elif scores is not None:
        _say(f'{folder}/model.pt: the best of {trainer.epoch} epochs')
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    """Return the command line."""
    default = {field.name: field.default for field in dataclasses.fields(TrainingConfig)}
    parser = argparse.ArgumentParser(
        prog='train_pose', description='Train a network that reads arm and camera off a picture.')
    add = parser.add_argument
    add('--data', type=Path, nargs='+', required=True, metavar='BAG',
        help='captured bags, or folders of bags')
    add('--output', type=Path, required=True, metavar='FOLDER',
        help='of the run: checkpoint.pt, model.pt, progress.csv, curve.png, TensorBoard events')
    add('--model', choices=list(MODELS), help=f'architecture [{default["model"]}]')
    add('--epochs', type=int, help=f'how often every frame is seen [{default["epochs"]}; '
        'no limit with --minutes]')
    add('--minutes', type=float, help='end after this time, what came before a resume included')
    for name, kind, text in (
            ('batch', int, 'frames a step'), ('lr', float, 'highest learning rate'),
            ('weight_decay', float, 'of AdamW'), ('seed', int, 'of every random choice'),
            ('threads', int, 'that compute; 0: as many as torch likes'),
            ('workers', int, 'processes that read; -1: 1 for compressed bags, else 0')):
        add('--' + name.replace('_', '-'), type=kind, help=f'{text} [{default[name]}]')
    add('--init', type=Path, metavar='FILE',
        help='begin with the weights of this model file or run, not with random ones')
    add('--resume', action='store_true', help='go on with the training in --output')
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == '__main__':
    raise SystemExit(main())

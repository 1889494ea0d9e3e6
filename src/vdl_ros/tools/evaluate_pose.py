"""Evaluate a pose network on captured frames: ``ros2 run vdl_ros evaluate_pose --help``.

Not a node: it has no topics and takes ordinary options.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vdl_ros.attacks.attack_config import AttackConfig
from vdl_ros.attacks.pose_attack import ImageAttack, check_mode, warning
from vdl_ros.common.command_line import OneLineParser, run_tool
from vdl_ros.common.settings import build, settings_of
from vdl_ros.pose.dataset import PoseDataset
from vdl_ros.pose.estimator import PoseEstimator, model_path
from vdl_ros.pose.evaluation import draw_estimates, estimate_all, format_table, score


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    return run_tool('evaluate_pose', lambda: _evaluate(options))


def _evaluate(options: argparse.Namespace) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    path = options.model or model_path()
    estimator = PoseEstimator.load(path)
    attacks = _attacks(options)
    rows, drawn = [], []
    for folder in options.data:
        data = PoseDataset([folder])
        print(f'{folder}: {data.report()}', file=sys.stderr)
        chosen = range(min(len(data), options.frames or len(data)))
        truth = data.targets[:len(chosen)].numpy()
        for name, attack in attacks.items():
            estimate = estimate_all(estimator, data, chosen, _change(attack, estimator))
            rows.append((f'{folder.name}{name}', score(estimate, truth)))
            drawn.append((f'{folder.name}{name}', estimate, truth))
    if options.picture:
        draw_estimates(options.picture, drawn)
    if options.json:
        print(json.dumps({
            'model': str(path), 'architecture': estimator.name,
            'data': {name: scores.as_dict() for name, scores in rows}}, indent=2))
    elif options.table:
        print(format_table(rows))
    else:
        for name, scores in rows:
            print(f'{name}: joints {scores.joint_accuracy:.3f} within 10 degrees, '
                  f'{math.degrees(scores.joint_error):.2f} degrees off, '
                  f'{scores.confident:.3f} confident')


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog='evaluate_pose',
        description='Evaluate a network that estimates camera and joint positions from a picture.')
    add = parser.add_argument
    add('--data', type=Path, nargs='+', required=True, metavar='FOLDER',
        help='captured data sets, a row of the table each')
    add('--model', type=Path, metavar='FILE',
        help='model file or folder of a run [the model in this package]')
    add('--frames', type=int, default=0, help='number of frames of each [all]')
    add('--adversarial_mode', nargs='+', default=[], metavar='MODE',
        help='attacks on the pictures, in which the frames follow each other; a row of '
             'the table for each, and each size')
    add('--adversarial_epsilon', nargs='+', default=['0.01'], metavar='E',
        help='their sizes; pictures have values from 0 to 1 [0.01]')
    add('--threads', type=int, default=0, help='threads that compute; 0: PyTorch\'s default [0]')
    add('--table', action='store_true', help='print a table in Markdown')
    add('--json', action='store_true',
        help='print everything as JSON; pooled over the joints: joint_accuracy_10deg')
    add('--picture', type=Path, metavar='FILE', help='plot estimates against the truth')
    return parser


def _attacks(options: argparse.Namespace) -> dict[str, AttackConfig | None]:
    """Return the attacks by the end of their row's name; first none."""
    epsilon = settings_of(AttackConfig)['adversarial_epsilon']
    found: dict[str, AttackConfig | None] = {'': None}
    for mode in options.adversarial_mode:
        for text in options.adversarial_epsilon:
            attack = build(AttackConfig, {
                'adversarial_mode': mode, 'adversarial_epsilon': epsilon.parse(text)})
            check_mode(attack)
            if line := warning(attack):
                print(f'evaluate_pose: {line}', file=sys.stderr)
            found[f', {mode} {text}'] = attack
    return found


def _change(
    attack: AttackConfig | None, estimator: PoseEstimator,
) -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]] | None:
    """Return a function from a picture to the next one under attack; None without one."""
    if attack is None:
        return None
    images = ImageAttack(attack, estimator)
    return lambda picture: images.perturb(picture).pixels

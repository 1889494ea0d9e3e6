"""Evaluate estimates: accuracy within ten degrees, mean errors, calibration, a plot."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vdl_ros.pose.dataset import PoseDataset
from vdl_ros.pose.estimator import Estimate, PoseEstimator
from vdl_ros.pose.networks import JOINT_OUTPUTS, OUTPUTS, errors

_BATCH = 64
#: Errors below this count as accurate: rad for angles, a share of the truth for the distance.
CLOSE = math.radians(10.0)
_CLOSE_DISTANCE = 0.10
# Accuracy that the joints of confident estimates must have.
_TRUSTED = 0.99


@dataclass(frozen=True)
class Scores:
    """Accuracy and errors of the estimates of one data set.

    ``accuracy`` by output: share within 10 degrees, or within 10 % for the distance. ``error`` by
    output: mean absolute error, m and rad. ``joint_accuracy`` and ``joint_error`` pool base,
    shoulder and elbow. ``confident`` is the share of confident estimates and
    ``confident_accuracy`` the pooled accuracy among them, NaN if there are none. ``within_std`` by
    output: share of errors below the stated standard deviation.
    """

    frames: int
    accuracy: dict[str, float]
    error: dict[str, float]
    joint_accuracy: float
    joint_error: float
    confident: float
    confident_accuracy: float
    within_std: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints; errors of angles in degrees."""
        return {
            'frames': self.frames,
            'joint_accuracy_10deg': self.joint_accuracy,
            'joint_mean_error_deg': math.degrees(self.joint_error),
            'accuracy_10deg': self.accuracy,
            'mean_error': {
                name + ('_m' if name == OUTPUTS[0] else '_deg'):
                value if name == OUTPUTS[0] else math.degrees(value)
                for name, value in self.error.items()},
            'confident': self.confident,
            'confident_joint_accuracy_10deg': (
                None if math.isnan(self.confident_accuracy) else self.confident_accuracy),
            'within_std': self.within_std,
        }


def estimate_all(
    estimator: PoseEstimator, data: PoseDataset, indices: Sequence[int],
    change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]] | None = None,
    map_batches: Callable[..., Iterable[Estimate]] = map,
) -> Estimate:
    """Return the estimates of some frames, in batches.

    ``change`` returns what is shown instead of a picture, both RGB, uint8 [height, width, 3].
    """
    def estimate(batch: Sequence[int]) -> Estimate:
        pictures = data.pictures(batch)
        if change is not None:
            pictures = torch.from_numpy(np.stack([change(each) for each in pictures.numpy()]))
        return estimator.estimate(pictures)

    parts = map_batches(estimate, [
        indices[start:start + _BATCH] for start in range(0, len(indices), _BATCH)])
    return Estimate(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def score(estimate: Estimate, targets: NDArray[np.float32]) -> Scores:
    """Return the scores of estimates of ``targets``, the truth, float32 [frames, 6]."""
    off = _absolute_errors(estimate, targets)
    right = off <= CLOSE
    right[:, 0] = off[:, 0] <= _CLOSE_DISTANCE * targets[:, 0]
    joints = right[:, JOINT_OUTPUTS]
    trusted = joints[estimate.confident]

    def by_output(values: NDArray[Any]) -> dict[str, float]:
        return dict(zip(OUTPUTS, values.mean(0).tolist(), strict=True))

    return Scores(
        frames=len(off), accuracy=by_output(right), error=by_output(off),
        joint_accuracy=float(joints.mean()), joint_error=float(off[:, JOINT_OUTPUTS].mean()),
        confident=float(estimate.confident.mean()),
        confident_accuracy=float(trusted.mean()) if trusted.size else math.nan,
        within_std=by_output(off <= estimate.std))


def _absolute_errors(estimate: Estimate, targets: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the absolute error of each value, float32 [frames, 6], m and rad."""
    off: NDArray[np.float32] = errors(
        torch.from_numpy(estimate.values), torch.from_numpy(targets)).abs().numpy()
    return off


def calibrate(estimate: Estimate, targets: NDArray[np.float32]) -> dict[str, Any]:
    """Return the calibration of a model from its estimates of validation frames with scales of 1.

    The standard deviations are scaled so that 68.3 % of the errors are smaller, as in a normal
    distribution; the threshold is the largest below which 99 % of the joints are within ten
    degrees, but no more than the 99 % quantile.
    """
    off = _absolute_errors(estimate, targets)
    scale = np.quantile(off / estimate.std, 0.683, axis=0).clip(0.05, 20.0)
    worst = (estimate.std * scale)[:, JOINT_OUTPUTS].max(1)
    order = np.argsort(worst)
    right = (off[:, JOINT_OUTPUTS] <= CLOSE).mean(1)[order]
    so_far = np.cumsum(right) / np.arange(1, len(right) + 1)
    # From a tenth of the frames on: fewer are no statistics.
    least = len(right) // 10
    enough = np.flatnonzero(so_far[least:] >= _TRUSTED) + least
    last = min(int(enough[-1]) if len(enough) else least, int(0.99 * (len(right) - 1)))
    return {'scale': [float(each) for each in scale], 'threshold': float(worst[order][last])}


def calibrated(estimate: Estimate, calibration: Mapping[str, Any]) -> Estimate:
    """Apply a calibration to estimates that were made with scales of 1 and no threshold."""
    std = (estimate.std * calibration['scale']).astype(np.float32)
    trusted = std[:, JOINT_OUTPUTS].max(1) <= calibration['threshold']
    return estimate._replace(std=std, confident=estimate.confident & trusted)


def format_table(rows: Sequence[tuple[str, Scores]]) -> str:
    """Return a table in Markdown: accuracy (mean error), a row for each data set."""
    names = [name.removeprefix('camera_') for name in OUTPUTS]
    head = ['data', 'frames', 'joints', *names, 'confident']
    lines = [head, ['---'] + ['---:'] * (len(head) - 1)]
    for title, scores in rows:
        cells = [title, f'{scores.frames}',
                 f'{scores.joint_accuracy:.3f} ({math.degrees(scores.joint_error):.1f}°)']
        for name in OUTPUTS:
            size = scores.error[name]
            unit = f'{100 * size:.1f} cm' if name == OUTPUTS[0] else f'{math.degrees(size):.1f}°'
            cells.append(f'{scores.accuracy[name]:.3f} ({unit})')
        lines.append([*cells, f'{scores.confident:.3f}'])
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def draw_estimates(path: Path, sets: Sequence[tuple[str, Estimate, NDArray[np.float32]]]) -> None:
    """Plot title, estimates and truth, float32 [frames, 6], of data sets as PNG, PDF or SVG.

    Six panels show the first data set, each estimate a dot over its truth, not confident ones in
    grey; the last shows the cumulative distribution of the joints' errors for every data set.
    """
    # Imported late: it takes a second.
    from matplotlib.figure import Figure
    figure = Figure(figsize=(13.0, 6.4), dpi=110, layout='constrained')
    panels = figure.subplots(2, 4).ravel()
    title, estimate, truth = sets[0]
    for column, name in enumerate(OUTPUTS):
        axes = panels[column]
        scale, unit = (100.0, 'cm') if column == 0 else (180.0 / np.pi, '°')
        for chosen, color in ((~estimate.confident, '#b0b7c0'), (estimate.confident, '#1f6feb')):
            axes.plot(truth[chosen, column] * scale, estimate.values[chosen, column] * scale, '.',
                      color=color, markersize=2)
        ends = [truth[:, column].min() * scale, truth[:, column].max() * scale]
        axes.plot(ends, ends, color='black', linewidth=0.8, alpha=0.5)
        axes.set_title(f'{name}, {unit}', loc='left', fontsize=10)
    panels[0].set_xlabel('truth')
    panels[0].set_ylabel(f'estimate, {title}')
    axes = panels[6]
    for title, estimate, truth in sets:
        off = np.sort(np.degrees(_absolute_errors(estimate, truth)[:, JOINT_OUTPUTS]).ravel())
        axes.plot(off, (np.arange(len(off)) + 1) / len(off), linewidth=1.6, label=title)
    axes.set_xlim(0, 20)
    axes.axvline(10.0, color='black', linewidth=0.8, alpha=0.5)
    axes.set_title('share of joints with at most this error, degrees', loc='left', fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    panels[7].axis('off')
    for axes in panels[:7]:
        axes.grid(alpha=0.25)
        axes.spines[['top', 'right']].set_visible(False)
    figure.savefig(path)

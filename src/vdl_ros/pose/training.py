"""Train a pose network: settings, the files of a run, and the loop."""

import dataclasses
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vdl_ros.common.event_file import EventFile
from vdl_ros.common.files import ProgressTable, atomic_file, is_unused, lock_folder, write_text
from vdl_ros.common.tensor_file import faster_in_bfloat16, load_tensor_file, save_tensor_file
from vdl_ros.pose.dataset import PoseDataset
from vdl_ros.pose.estimator import PoseEstimator, augment, flip, load_model, save_model, to_float
from vdl_ros.pose.evaluation import Scores, calibrate, calibrated, estimate_all, score
from vdl_ros.pose.networks import UNIT_M, Raw, decode, encode, errors, make_model, project_points

# Errors below this count by their square, larger ones by their size: a few frames that cannot be
# read, one link hidden behind another, must not dominate the rest.
_SMALL = 0.03
_POINTS, _MAPS, _SURENESS, _LENGTH = 3.0, 0.3, 0.1, 0.02


class Loss(NamedTuple):
    """The sum that is minimised, and its parts; scalars."""

    total: Tensor
    pose: Tensor
    points: Tensor
    maps: Tensor
    sureness: Tensor


def pose_loss(raw: Raw, targets: Tensor, points: Tensor) -> Loss:
    """Return the loss of a batch: targets, [batch, 6], points, [batch, points, 3]."""
    truth = encode(targets)
    distance = raw.encoded[:, :1] - truth[:, :1]
    pairs = raw.encoded[:, 1:].reshape(len(truth), -1, 2)
    length = pairs.norm(dim=-1, keepdim=True)
    # Chord between the directions: smooth over the whole circle.
    apart = pairs / (length + 1e-6) - truth[:, 1:].reshape(len(truth), -1, 2)
    squares = torch.cat([distance.square(), apart.square().sum(-1)], -1)
    pose = ((squares + _SMALL ** 2).sqrt() - _SMALL).mean()
    kept_short = (length - 1.0).square().mean()
    nearby = ((raw.points - points).square() + _SMALL ** 2).sqrt().mean() - _SMALL
    likely = _map_loss(raw.maps, points) if raw.maps is not None else torch.zeros(())
    # Detached: a large standard deviation must not reduce the gradient of the error.
    off = errors(decode(raw.encoded.detach()), targets)
    off = torch.cat([off[:, :1] / UNIT_M, off[:, 1:]], -1)
    sureness = (raw.log_std + 0.5 * off.square() * (-2.0 * raw.log_std).exp()).mean()
    total = (pose + _LENGTH * kept_short + _POINTS * nearby + _MAPS * likely +
             _SURENESS * sureness)
    return Loss(total, pose.detach(), nearby.detach(), likely.detach(), sureness.detach())


def _map_loss(maps: Tensor, points: Tensor) -> Tensor:
    """Return the mean cross entropy of maps and points; points outside do not count.

    A point lies between four cells; each is a target with its bilinear weight.
    """
    side = maps.shape[-1]
    logs = maps.flatten(2).log_softmax(-1)
    cells = (points[..., :2] + 1.0) * (0.5 * side) - 0.5
    inside = ((cells > -0.5) & (cells < side - 0.5)).all(-1)
    cells = cells.clamp(0.0, side - 1.001)
    corner = cells.floor()
    share = cells - corner
    first = corner.long()
    entropy = torch.zeros_like(share[..., 0])
    for right, below in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = ((share[..., 0] if right else 1.0 - share[..., 0]) *
                  (share[..., 1] if below else 1.0 - share[..., 1]))
        index = (first[..., 1] + below) * side + first[..., 0] + right
        entropy = entropy - weight * logs.gather(2, index[..., None])[..., 0]
    return (entropy * inside).sum() / inside.sum().clamp(min=1)


# Matrices whose smaller side is longer cost too much to orthogonalise.
_MAX_SIDE = 512
# Muon's learning rate, as a multiple of AdamW's: its updates have norm one.
_MUON_RATE = 15.0


class PoseOptimizer:
    """Muon and AdamW as one optimiser; a convolution's kernel is a matrix, one row per output.

    AdamW optimises the first and the last layer, as Muon's authors recommend. They orthogonalise
    in bfloat16; float32 is many times faster on processors without instructions for bfloat16.
    """

    def __init__(self, model: nn.Module, weight_decay: float, *, bfloat16: bool):
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        heavy = [each for name, each in named if each.ndim > 1]
        inner = [each for name, each in named if each.ndim > 1 and not name.startswith('head.')]
        self._parameters = [each for _, each in named]
        self._kernels = [each for each in inner[1:]
                         if min(len(each), each[0].numel()) <= _MAX_SIDE]
        # Views of the parameters: a step on them changes the network.
        self._matrices = [nn.Parameter(_as_matrix(each.data)) for each in self._kernels]
        ours = {id(each) for each in self._kernels}
        kind = torch.optim.Muon if bfloat16 else _Float32Muon
        self._muons = [kind([each], lr=0.0, weight_decay=weight_decay) for each in self._matrices]
        self._adamw = torch.optim.AdamW(
            [{'params': [each for each in heavy if id(each) not in ours],
              'weight_decay': weight_decay},
             {'params': [each for _, each in named if each.ndim <= 1], 'weight_decay': 0.0}],
            lr=0.0, foreach=True)

    def step(
        self, gradients: Sequence[Tensor], lr: float, max_norm: float, pool: Executor,
    ) -> None:
        """Take a step; the gradients, of every parameter in order, are clipped in place."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        nn.utils.clip_grad_norm_(self._parameters, max_norm, foreach=True)
        for matrix, kernel in zip(self._matrices, self._kernels, strict=True):
            assert kernel.grad is not None
            matrix.grad = _as_matrix(kernel.grad.contiguous(
                memory_format=_layout(kernel)) if kernel.ndim == 4 else kernel.grad)
        for muon in self._muons:
            muon.param_groups[0]['lr'] = _MUON_RATE * lr
        for group in self._adamw.param_groups:
            group['lr'] = lr
        # The largest first, or a thread would end long after the others.
        updates = [pool.submit(each.step) for each in sorted(
            self._muons, key=lambda each: -each.param_groups[0]['params'][0].numel())]
        self._adamw.step()
        for each in updates:
            each.result()

    def state_dict(self) -> dict[str, Any]:
        return {'muon': [each.state_dict() for each in self._muons],
                'adamw': self._adamw.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; KeyError, ValueError: of another optimiser."""
        for muon, found in zip(self._muons, state['muon'], strict=True):
            muon.load_state_dict(found)
        self._adamw.load_state_dict(state['adamw'])


class _Float32Muon(torch.optim.Muon):
    """PyTorch's Muon, with the same state, computed in float32."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        group, = self.param_groups
        matrix, = group['params']
        state, momentum, lr = self.state[matrix], group['momentum'], group['lr']
        if not state:
            state['momentum_buffer'] = torch.zeros_like(matrix.grad)
        average = state['momentum_buffer'].lerp_(matrix.grad, 1.0 - momentum)
        update = orthogonalize(matrix.grad.lerp(average, momentum), group['ns_coefficients'],
                         group['ns_steps'])
        rows, columns = matrix.shape
        matrix.mul_(1.0 - lr * group['weight_decay'])
        matrix.sub_(update, alpha=lr * math.sqrt(max(1.0, rows / columns)))


def orthogonalize(matrix: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """Return ``matrix`` with all singular values near one, by the Newton-Schulz iteration of Muon.

    An iteration with the coefficients a, b, c is X <- a X + (b A + c A A) X with A = X X^T.
    """
    a, b, c = coefficients
    tall = len(matrix) > len(matrix[0])
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _layout(kernel: Tensor) -> torch.memory_format:
    last = kernel.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _as_matrix(kernel: Tensor) -> Tensor:
    """Return [outputs, n] with the same storage."""
    if kernel.ndim == 4 and _layout(kernel) is torch.channels_last:
        kernel = kernel.permute(0, 2, 3, 1)
    return kernel.view(len(kernel), -1)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Settings of a training; the first limit that is reached ends it."""

    model: str = 'resnet'
    epochs: int = 30
    minutes: float = 0.0
    batch: int = 64
    lr: float = 2e-3
    weight_decay: float = 0.02
    seed: int = 0
    threads: int = 0


COLUMNS = ('step', 'epoch', 'samples', 'minutes', 'samples_per_s', 'lr', 'loss', 'joint_accuracy',
           'joint_error_deg', 'azimuth_accuracy', 'azimuth_error_deg', 'confident')


def draw_curve(path: Path, rows: list[dict[str, float]]) -> None:
    """Draw accuracy and error against frames seen, from the rows of progress.csv."""
    # Imported late: it takes a second.
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter
    samples = [row['samples'] for row in rows]
    figure = Figure(figsize=(7.2, 3.6), dpi=120, layout='constrained')
    left, right = figure.subplots(1, 2)
    for axes, kind, label in ((left, 'accuracy', 'share within 10°'),
                              (right, 'error_deg', 'mean absolute error, degrees')):
        for name, color in (('joint', '#1f6feb'), ('azimuth', '#d29922')):
            values = [row[f'{name}_{kind}'] for row in rows]
            axes.plot(samples, values, color=color, linewidth=2,
                      label=f'{"joints" if name == "joint" else name} {values[-1]:.3g}')
        axes.set_xlabel('frames seen')
        axes.set_title(label, loc='left', fontsize=10)
        axes.xaxis.set_major_formatter(EngFormatter())
        axes.grid(alpha=0.25)
        axes.spines[['top', 'right']].set_visible(False)
        axes.legend(frameon=False)
    right.set_yscale('log')
    with atomic_file(path) as partial:
        figure.savefig(partial, format='png')


_WARMUP = 300
_MAX_AVERAGE, _MAX_GRADIENT = 0.999, 1.0
# Every 50th frame is held out: by its number, so that a bag may grow before a resume.
_HELD_OUT, _MAX_HELD_OUT = 50, 2000


class Trainer:
    """One training.

    Its folder has ``config.json``, events for TensorBoard, ``progress.csv`` with a row per
    validation, ``curve.png``, ``checkpoint.pt`` to resume from, and the best ``model.pt`` so far.

    Args:
        data: the frames; every 50th is held out for validation.
        init: model file or folder of a run with initial weights.
        log: called with each line of progress.

    Attributes:
        elapsed: seconds so far, those before a resume included.

    Raises:
        ValueError: too few frames, an unknown model, a folder or checkpoint that does not fit.
    """

    def __init__(
        self, data: PoseDataset, config: TrainingConfig, folder: Path, *, resume: bool = False,
        init: Path | None = None, log: Callable[[str], None] = print,
    ):
        self._data, self.config, self._log = data, config, log
        self._held_out = list(range(0, len(data), _HELD_OUT))[:_MAX_HELD_OUT]
        held = set(self._held_out)
        self._frames = torch.tensor([each for each in range(len(data)) if each not in held])
        self._batches = len(self._frames) // config.batch  # whole ones, in an epoch
        if not self._batches:
            raise ValueError(f'{len(data)} frames are too few for batches of {config.batch}')
        # Data-parallel threads synchronise once a step. Threads within operations synchronise in
        # each operation, which costs half the speed, and more on a busy machine.
        self._threads = config.threads or torch.get_num_threads()
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(
            self._threads, initializer=torch.set_num_threads, initargs=(1,))
        torch.manual_seed(config.seed)
        if init is not None and resume:
            raise ValueError(f'--init: {init} is not allowed with --resume, which has its weights')
        self._model = (make_model(config.model) if init is None else
                       load_model(init, config.model)[0])
        self._average = make_model(config.model)
        self._average.load_state_dict(self._model.state_dict())
        self._bfloat16 = bfloat16_is_faster()
        self._optimizer = PoseOptimizer(self._model, config.weight_decay, bfloat16=self._bfloat16)
        self._lr = 0.0
        self.step, self.epoch, self.elapsed = 0, 0, 0.0
        self._done_in_epoch, self._best, self._saved_step = 0, math.inf, 0
        self._folder = folder
        if resume:
            self._load()
        elif not is_unused(folder):
            raise ValueError(f'--output: {folder} is not empty; name another folder, or --resume')
        self._lock = lock_folder(folder)
        self._points = torch.from_numpy(project_points(data))
        write_text(folder / 'config.json', json.dumps(
            {**dataclasses.asdict(config), 'frames': len(data), 'bfloat16': self._bfloat16},
            indent=2) + '\n')
        self._progress = ProgressTable(folder / 'progress.csv', COLUMNS)
        self._progress.truncate(self.step)
        self._events = EventFile(folder, self.step + 1)

    def train(self, stop: threading.Event) -> Scores | None:
        """Train to a limit, or until ``stop`` is set; return the last validation's scores."""
        config = self.config
        parameters = sum(each.numel() for each in self._model.parameters())
        self._log(f'{config.model}, {parameters / 1e6:.2f} million parameters, '
                  f'{len(self._frames):,} frames and {len(self._held_out):,} held out, '
                  f'{"bfloat16" if self._bfloat16 else "float32"}')
        scores = None
        try:
            while self.epoch < config.epochs and not stop.is_set() and self._share() < 1.0:
                losses = self._train_epoch(stop)
                if self._done_in_epoch < self._batches and self._share() < 1.0:
                    break  # stopped in the middle
                self.epoch, self._done_in_epoch = self.epoch + 1, 0
                scores = self._validate(losses)
                self._save()
        finally:
            self._save_last()
            self._lock.close()
        return scores

    def _share(self) -> float:
        """Return how much of the training is done, 0 to 1."""
        share = (self.epoch + self._done_in_epoch / self._batches) / self.config.epochs
        if self.config.minutes:
            share = max(share, self.elapsed / (60.0 * self.config.minutes))
        return min(share, 1.0)

    def _train_epoch(self, stop: threading.Event) -> dict[str, float]:
        """Train for the rest of this epoch; return its mean losses and its speed."""
        sums, count = torch.zeros(len(Loss._fields)), 0
        began, first = time.monotonic(), self.elapsed
        logged_at = began
        self._model.train()
        for pictures, targets, indices in self._remaining_batches():
            if stop.is_set() or self._share() >= 1.0:
                break
            loss = self._train_batch(pictures, targets, self._points[indices])
            sums, count = sums + torch.stack(loss), count + 1
            self.step, self._done_in_epoch = self.step + 1, self._done_in_epoch + 1
            now = time.monotonic()
            self.elapsed = first + now - began
            if now - logged_at > 10.0:
                logged_at = now
                self._log(f'{100 * self._share():5.1f} %  epoch {self.epoch + 1}  '
                          f'step {self.step}  loss {float(sums[0]) / count:.4f}  '
                          f'{count * self.config.batch / (now - began):.0f} frames/s  '
                          f'{self.elapsed / 60.0:.1f} min')
        means = (sums / max(count, 1)).tolist()
        speed = count * self.config.batch / max(time.monotonic() - began, 1e-9)
        return {**dict(zip(Loss._fields, means, strict=True)), 'samples_per_s': speed}

    def _train_batch(self, pictures: Tensor, targets: Tensor, points: Tensor) -> Loss:
        self._lr = self.config.lr * min(1.0, (self.step + 1) / _WARMUP) * (
            0.5 + 0.5 * math.cos(math.pi * self._share()) + 0.005)
        parts = list(zip(*(each.chunk(self._threads) for each in (pictures, targets, points)),
                         strict=True))
        results = list(self._pool.map(self._gradients, range(len(parts)), parts))
        weights = torch.tensor([len(part[0]) / len(pictures) for part in parts])
        loss = Loss(*(torch.stack(each) @ weights
                      for each in zip(*(losses for losses, _ in results), strict=True)))
        if not torch.isfinite(loss.total):
            raise FloatingPointError(f'step {self.step}: the loss is {float(loss.total)}')
        gradients = [
            torch.stack([piece * weight for piece, weight in zip(pieces, weights, strict=True)]
                        ).sum(0)
            for pieces in zip(*(each for _, each in results), strict=True)]
        self._optimizer.step(gradients, self._lr, _MAX_GRADIENT, self._pool)
        # A short average at first: without the random initial weights.
        kept = min(_MAX_AVERAGE, (self.step + 1) / (self.step + 20))
        with torch.no_grad():
            torch._foreach_lerp_(list(self._average.parameters()),
                                 list(self._model.parameters()), 1.0 - kept)
        return loss

    def _gradients(
        self, number: int, part: tuple[Tensor, Tensor, Tensor],
    ) -> tuple[Loss, tuple[Tensor, ...]]:
        generator = torch.Generator().manual_seed(
            (self.config.seed * 1_000_003 + self.step) * 64 + number)
        chosen = torch.rand(len(part[0]), generator=generator) < 0.5
        pictures, targets, points = flip(*part, chosen)
        seen = augment(to_float(pictures), generator)
        with torch.autocast('cpu', torch.bfloat16, enabled=self._bfloat16):
            raw = self._model(seen.contiguous(memory_format=torch.channels_last))
        loss = pose_loss(raw, targets, points)
        gradients = torch.autograd.grad(loss.total, list(self._model.parameters()))
        return Loss(*(each.detach() for each in loss)), gradients

    def _remaining_batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield pictures, targets and indices of the rest of this epoch."""
        size = self.config.batch
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.epoch)
        order = self._frames[torch.randperm(len(self._frames), generator=generator)]
        for start in range(self._done_in_epoch * size, self._batches * size, size):
            chosen = order[start:start + size]
            yield self._data.pictures(chosen), self._data.targets[chosen], chosen

    def _validate(self, losses: dict[str, float]) -> Scores:
        """Score the averaged weights on the frames held out; keep the best."""
        truth = self._data.targets[self._held_out].numpy()
        plain = PoseEstimator(self._average, self.config.model)
        estimate = estimate_all(plain, self._data, self._held_out, map_batches=self._pool.map)
        calibration = calibrate(estimate, truth)
        scores = score(calibrated(estimate, calibration), truth)
        mean = sum(error for name, error in scores.error.items() if name != 'camera_distance')
        row = {
            'step': self.step, 'epoch': self.epoch, 'samples': self.step * self.config.batch,
            'minutes': self.elapsed / 60.0, 'samples_per_s': losses['samples_per_s'],
            'lr': self._lr, 'loss': losses['total'],
            'joint_accuracy': scores.joint_accuracy,
            'joint_error_deg': math.degrees(scores.joint_error),
            'azimuth_accuracy': scores.accuracy['camera_azimuth'],
            'azimuth_error_deg': math.degrees(scores.error['camera_azimuth']),
            'confident': scores.confident}
        self._progress.append({name: f'{row[name]:.6g}' for name in COLUMNS})
        scalars = {f'loss/{name}': losses[name] for name in Loss._fields} | {
            f'error/{name}': value for name, value in scores.error.items()}
        self._events.add({name: value for name, value in {**row, **scalars}.items()
                          if name != 'step'}, self.step)
        draw_curve(self._folder / 'curve.png', self._progress.rows())
        self._log(f'epoch {self.epoch}: joints {scores.joint_accuracy:.3f} within 10 degrees, '
                  f'{row["joint_error_deg"]:.2f} degrees off; azimuth '
                  f'{row["azimuth_accuracy"]:.3f}, {row["azimuth_error_deg"]:.2f} degrees; '
                  f'{losses["samples_per_s"]:.0f} frames/s')
        if mean < self._best:
            self._best = mean
            origin = {
                **dataclasses.asdict(self.config), 'frames': len(self._data), 'step': self.step,
                'epoch': self.epoch, 'minutes': row['minutes'], 'validation': scores.as_dict()}
            save_model(self._folder / 'model.pt', self.config.model,
                       self._average.state_dict(), calibration, origin)
        return scores

    def _save_last(self) -> None:
        try:
            if self.step:
                self._save()
        except OSError:
            self._log(f'what was learned after step {self._saved_step} is lost, its checkpoint is '
                      'whole')
            raise

    def _save(self) -> None:
        save_tensor_file(self._folder / 'checkpoint.pt', {
            'config': dataclasses.asdict(self.config), 'model': self._model.state_dict(),
            'average': self._average.state_dict(), 'optimizer': self._optimizer.state_dict(),
            'step': self.step, 'epoch': self.epoch, 'done_in_epoch': self._done_in_epoch,
            'elapsed': self.elapsed, 'best': self._best})
        self._saved_step = self.step

    def _load(self) -> None:
        path = self._folder / 'checkpoint.pt'
        if not path.is_file():
            raise ValueError(f'--resume: {self._folder} holds no checkpoint.pt')
        found = load_tensor_file(path, 'checkpoint')
        name = found.get('config', {}).get('model', self.config.model)
        if name != self.config.model:
            raise ValueError(f'{path}: the architecture is {name}, not {self.config.model}')
        try:
            self._model.load_state_dict(found['model'])
            self._average.load_state_dict(found['average'])
            self._optimizer.load_state_dict(found['optimizer'])
            self.step = self._saved_step = int(found['step'])
            self.epoch = int(found['epoch'])
            self._done_in_epoch = min(int(found['done_in_epoch']), self._batches)
            self.elapsed, self._best = float(found['elapsed']), float(found['best'])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0][:120]
            raise ValueError(f'{path}: not a checkpoint of this program: {reason}') from None


def bfloat16_is_faster() -> bool:
    """Return whether this CPU computes such networks faster in bfloat16 than in float32."""
    x = torch.rand(16, 64, 32, 32).to(memory_format=torch.channels_last)
    layer = nn.Conv2d(64, 64, 3, padding=1)
    with torch.no_grad():
        return faster_in_bfloat16(lambda: layer(x))

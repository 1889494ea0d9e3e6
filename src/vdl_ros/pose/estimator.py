"""Estimate poses with a trained network: model files, calibrated estimates, augmentation."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.common.files import find_resource
from vdl_ros.common.quoting import quoted
from vdl_ros.common.tensor_file import TensorFileError, load_tensor_file, save_tensor_file
from vdl_ros.pose import networks
from vdl_ros.pose.dataset import SIZE

# Shares of a batch.
_BLURRED, _NOISY, _ERASED, _EMPTY = 0.2, 0.4, 0.05, 0.01


def to_float(pictures: Tensor) -> Tensor:
    """Return float [batch, 3, height, width] from 0 to 1 for uint8 [batch, height, width, 3]."""
    return pictures.permute(0, 3, 1, 2).to(torch.float32) / 255.0


def flip(
    pictures: Tensor, targets: Tensor, points: Tensor, chosen: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a batch in which the chosen frames, bool [batch], are flipped."""
    pictures, targets, points = pictures.clone(), targets.clone(), points.clone()
    pictures[chosen] = pictures[chosen].flip(2)
    targets[chosen] *= networks.MIRROR
    points[chosen] = points[chosen][:, list(networks.MIRRORED)] * torch.tensor([-1.0, 1.0, 1.0])
    return pictures, targets, points


def _draws(
    count: int, generator: torch.Generator,
) -> tuple[Callable[..., Tensor], Callable[[float], Tensor]]:
    """Return what draws numbers from ``low`` to ``high`` of a shape, and a share of a batch."""
    return (lambda low, high, *shape: torch.empty(shape).uniform_(low, high, generator=generator),
            lambda part: torch.rand(count, generator=generator) < part)


def relight(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Return pictures in other light and colours, some blurred or noisy; not clamped.

    Pictures are float [batch, 3, height, width] from 0 to 1.
    """
    count = len(pictures)
    uniform, share = _draws(count, generator)
    blurred = share(_BLURRED)
    if blurred.any():
        # From a little to about a pixel: a lens out of focus.
        weight = uniform(0.0, 1.0, int(blurred.sum()), 1, 1, 1)
        soft = functional.avg_pool2d(pictures[blurred], 3, 1, 1, count_include_pad=False)
        pictures[blurred] = torch.lerp(pictures[blurred], soft, weight)
    middle = pictures.mean((2, 3), keepdim=True)
    contrast = uniform(0.75, 1.3, count, 1, 1, 1)
    color = uniform(0.88, 1.12, count, 3, 1, 1)
    offset = uniform(-0.08, 0.08, count, 1, 1, 1)
    pictures = (pictures * (contrast * color)).add_(middle * (1.0 - contrast) + offset)
    noisy = share(_NOISY)
    if noisy.any():
        strength = uniform(0.0, 0.04, int(noisy.sum()), 1, 1, 1)
        noise = torch.randn(pictures[noisy].shape, generator=generator)
        pictures[noisy] += noise * strength
    return pictures


def augment(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Return pictures as :func:`relight` does, some part hidden.

    One in a hundred is blank: black, white or noise, for which a network must learn a large
    standard deviation. Pictures are float [batch, 3, height, width] from 0 to 1.
    """
    count, _, height, width = pictures.shape
    uniform, share = _draws(count, generator)
    pictures = relight(pictures, generator)
    for row in share(_ERASED).nonzero().flatten().tolist():
        size = torch.randint(6, 25, (2,), generator=generator).tolist()
        top = int(torch.randint(0, height - size[0], (1,), generator=generator))
        left = int(torch.randint(0, width - size[1], (1,), generator=generator))
        pictures[row, :, top:top + size[0], left:left + size[1]] = uniform(0.0, 1.0, 3, 1, 1)
    for row in share(_EMPTY).nonzero().flatten().tolist():
        kind = int(torch.randint(0, 4, (1,), generator=generator))
        if kind == 3:  # overexposed or underexposed
            pictures[row] = pictures[row] * 20.0 - uniform(-10.0, 25.0, 1, 1, 1)
        else:
            pictures[row] = uniform(0.0, 1.0, 3, 1, 1) if kind == 2 else float(kind)
            pictures[row] += uniform(0.0, 0.1, 1, 1, 1) * torch.randn(
                pictures[row].shape, generator=generator)
    return pictures.clamp_(0.0, 1.0)


FORMAT = 'vdl_ros pose 1'
DEFAULT = 'models/pose_resnet.pt'


def model_path(given: str = '') -> Path:
    """Return the path of a model file or run folder; of the model in this package by default."""
    return Path(given) if given else find_resource(DEFAULT)


def save_model(
    path: Path, name: str, model: Mapping[str, Tensor], calibration: Mapping[str, Any],
    origin: Mapping[str, Any],
) -> None:
    """Write a model file, whole or not at all.

    Args:
        model: its state, float32.
        calibration: ``scale``, six factors of the standard deviations; ``threshold``, rad, above
            which the joints are not to be trusted.
    """
    state = {key: value.to(torch.float16) for key, value in model.items()}
    save_tensor_file(path, {'format': FORMAT, 'model': name, 'state': state,
                            'calibration': dict(calibration), 'origin': dict(origin)})


def load_model(path: Path, expected: str = '') -> tuple[nn.Module, dict[str, Any]]:
    """Return the network in evaluation mode, and the content of the file or of a run's model.pt.

    Raises:
        TensorFileError: missing, corrupt, malicious, or of another architecture than ``expected``.
    """
    if path.is_dir():
        path = path / 'model.pt'
    found = load_tensor_file(path, 'pose model')
    if found.get('format') != FORMAT:
        raise TensorFileError(f'{path}: not a pose model of this program')
    name = found.get('model')
    if not isinstance(name, str) or name not in networks.MODELS:
        raise TensorFileError(
            f'{path}: architecture {quoted(name)} is not one of {", ".join(networks.MODELS)}')
    if expected and name != expected:
        raise TensorFileError(f'{path}: the architecture is {name}, not {expected}')
    model = networks.make_model(name)
    try:
        model.load_state_dict(found['state'])
        scale = [float(each) for each in found['calibration']['scale']]
        threshold = float(found['calibration']['threshold'])
        if len(scale) != len(networks.OUTPUTS) or not threshold > 0.0:
            raise ValueError('calibration')
        found['calibration'] = {'scale': scale, 'threshold': threshold}
    # What torch raises at tensors of other shapes or types is of any kind.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = ' '.join(lines[:2])[:160]
        raise TensorFileError(f'{path}: not the weights of this {name}: {reason}') from None
    return model.eval(), found


# A picture whose brightness hardly varies, or most of which is black or white, shows no arm,
# whatever the network returns.
_LEAST_SPREAD, _MOST_CLIPPED = 0.03, 0.8


class Estimate(NamedTuple):
    """Estimates of some pictures.

    ``values`` and ``std`` are float32 [pictures, 6] in the order of ``networks.OUTPUTS``, m and
    rad; ``std`` is calibrated: two thirds of the errors on validation frames were smaller.
    ``confident`` is bool [pictures]: the joints are certain enough to act upon. ``readable`` is
    bool [pictures]: the picture is not blank.
    """

    values: NDArray[np.float32]
    std: NDArray[np.float32]
    confident: NDArray[np.bool_]
    readable: NDArray[np.bool_]


class PoseEstimator:
    """A network with its calibration, see :func:`save_model`; without one nothing is scaled."""

    def __init__(self, model: nn.Module, name: str, scale: Sequence[float] = (1.0,) * 6,
                 threshold: float = math.inf):
        self.name, self._threshold = name, threshold
        self._scale = torch.tensor(scale, dtype=torch.float32)
        self._model = model.eval()

    @classmethod
    def load(cls, path: Path) -> 'PoseEstimator':
        """Return the estimator of a model file or a run's folder; see :func:`load_model`."""
        model, found = load_model(path)
        return cls(model, found['model'], **found['calibration'])

    def estimate(self, pictures: NDArray[np.uint8] | Tensor) -> Estimate:
        """Return the estimates of some pictures, RGB, uint8 [pictures, 128, 128, 3].

        With flip test-time augmentation: each picture and its mirror image are estimated and
        averaged; where the two disagree, the standard deviation grows.
        """
        given = torch.as_tensor(pictures)
        with torch.inference_mode():
            values, std = self.outputs(to_float(given))
            readable = _readable(given)
        confident = readable & (std[:, networks.JOINT_OUTPUTS].amax(1) <= self._threshold)
        return Estimate(values.numpy(), std.numpy(), confident.numpy(), readable.numpy())

    def outputs(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and standard deviations as of :class:`Estimate`; differentiable.

        Pictures are float [pictures, 3, 128, 128] from 0 to 1.
        """
        values, std = average_flipped(self._model(torch.cat([pictures, pictures.flip(3)])))
        return values, std * self._scale


def average_flipped(raw: networks.Raw) -> tuple[Tensor, Tensor]:
    """Return values and uncalibrated standard deviations, averaged over both halves of a batch.

    The second half has the mirror images of the first one. Both are float [batch / 2, 6], m, rad.
    """
    std = (raw.log_std.exp() * torch.tensor([networks.UNIT_M, 1.0, 1.0, 1.0, 1.0, 1.0])).reshape(
        2, -1, len(networks.OUTPUTS))
    values = networks.decode(raw.encoded).reshape(2, -1, len(networks.OUTPUTS))
    values = torch.stack([values[0], values[1] * networks.MIRROR])
    weight = std**-2 / (std**-2).sum(0)
    # From the first towards the second, the short way round.
    both = values[0] + weight[1] * networks.errors(values[1], values[0])
    both = torch.cat([both[:, :1], networks.wrap(both[:, 1:])], 1)
    variance = (weight * (std**2 + networks.errors(values, both.expand_as(values))**2)).sum(0)
    return both, variance.sqrt()


def _readable(pictures: Tensor) -> Tensor:
    """Return which pictures are not blank, bool [pictures]."""
    flat = pictures.flatten(1)
    clipped = ((flat <= 2) | (flat >= 253)).float().mean(1)
    return (flat.float().std(1) / 255.0 >= _LEAST_SPREAD) & (clipped <= _MOST_CLIPPED)


# Of a picture, pixels.
_MIN_SIDE = SIZE // 2


def crop_square(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the middle of a picture, RGB, scaled, uint8 [1, 128, 128, 3].

    The networks were trained on square pictures with a vertical field of view of about 0.75 rad,
    so the sides of a wider picture are cut off.

    Raises:
        ValueError: it is smaller than 64 x 64, or higher than wide.
    """
    middle = torch.from_numpy(np.ascontiguousarray(middle_square(picture)))[None]
    if middle.shape[1] != SIZE:
        scaled = scale_square(middle.permute(0, 3, 1, 2).float())
        middle = scaled.round().clamp(0, 255).byte().permute(0, 2, 3, 1)
    found: NDArray[np.uint8] = middle.numpy()
    return found


def middle_square(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a view of what the networks see, [height, height, 3]; ValueError: its size."""
    height, width = picture.shape[:2]
    if min(height, width) < _MIN_SIDE:
        raise ValueError(f'picture: {width} x {height} is not allowed: '
                         f'at least {_MIN_SIDE} x {_MIN_SIDE}')
    if height > width:
        raise ValueError(f'picture: {width} x {height} is not allowed: higher than wide')
    left = (width - height) // 2
    return picture[:, left:left + height]


def scale_square(pictures: Tensor) -> Tensor:
    """Return pictures of the networks' size, float [batch, 3, 128, 128]; differentiable."""
    if pictures.shape[-1] == SIZE:
        return pictures
    return functional.interpolate(pictures, (SIZE, SIZE), mode='bilinear', antialias=True)

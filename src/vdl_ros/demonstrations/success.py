"""Train a classifier of success on pictures: from labelled episodes to an ONNX file.

As in HIL-SERL, Luo et al. 2024, arXiv:2410.21845.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import to_builtins
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from vdl_ros.bags.reader import find_bags, read_labels
from vdl_ros.common import images
from vdl_ros.common.memory import check_size
from vdl_ros.common.onnx_file import serialize_onnx
from vdl_ros.export.messages import ARM, ArmBag, Picture
from vdl_ros.pose.estimator import relight, to_float
from vdl_ros.robots.classifier import FORMAT, PICTURE, PROBABILITY, Classifier, colored
from vdl_ros.robots.contract import ImageTopic
from vdl_ros.robots.observer import frame

Say = Callable[[str], None]
Pictures = NDArray[np.uint8]


@dataclass(frozen=True)
class SuccessConfig:
    """Settings of a training.

    Attributes:
        positive_seconds: the end of an episode that shows success, s.
        unsure_seconds: what is left out before it, because nobody says when success began, s.
        steps: of the optimizer; ``minutes`` end them earlier.
    """

    positive_seconds: float = 0.5
    unsure_seconds: float = 1.0
    steps: int = 600
    minutes: float = 5.0
    seed: int = 0


@dataclass(frozen=True)
class Shown:
    """Pictures of an episode, uint8 [N, height, width, 3], and which show success, bool [N]."""

    pictures: Pictures
    labels: NDArray[np.bool_]


# Times between pictures that are learned from, s: those in between hardly differ.
_PERIOD_S = 0.1
# Of the episodes that end with success, and of the others, each of so many is held out.
_HELD_OUT = 5
_SAY_S = 5.0


class Progress:
    """Says a line at most each five seconds."""

    def __init__(self, say: Say) -> None:
        self._say, self._said = say, time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._said >= _SAY_S:
            self._said = time.monotonic()
            self._say(text)


def read_episodes(
    folder: Path, image: ImageTopic, config: SuccessConfig, say: Say,
) -> list[Shown]:
    """Return what a folder shows, as a robot sees an image by its contract.

    It has bags of ``record_episodes``, or folders ``success`` and ``failure`` of pictures; of
    these, neighbours in the order of their names count as an episode.

    Raises:
        ValueError: it is no such folder, a bag is damaged, or there are too few episodes.
    """
    if not folder.is_dir():
        raise ValueError(f'{folder} is no folder')
    progress, found = Progress(say), list[Shown]()
    sources = (_sorted_pictures(folder, image)
               if any((folder / name).is_dir() for name in _SORTED) else
               _episodes(folder, image, config, say))
    for number, episode in enumerate(sources, 1):
        found.append(episode)
        size = sum(each.pictures.nbytes for each in found)
        # Twice, because they are put together for the training.
        check_size(2 * size, f'{folder}: {number} episodes')
        progress(f'read {number} episodes, {size / 1e6:.0f} MB of pictures')
    shown = sum(each.labels.any() for each in found)
    if shown < _HELD_OUT:
        raise ValueError(f'{folder}: {shown} of {len(found)} episodes show success, which are too '
                         f'few: at least {_HELD_OUT}, of which one is held out')
    if all(each.labels.all() for each in found):
        raise ValueError(f'{folder}: all pictures show success: record more of each episode, or '
                         'episodes that are saved as a failure')
    return found


def _episodes(
    folder: Path, image: ImageTopic, config: SuccessConfig, say: Say,
) -> Iterator[Shown]:
    topic = image.topic.strip('/')
    topics = replace(ARM, types={topic: image.type}, states={}, rows=topic,
                     by_stamp=image.stamped)
    for bag in find_bags(folder):
        reader = ArmBag(bag, topics=topics)
        success, stamps, pictures = read_labels(bag).success, list[int](), list[Pictures]()
        if success is None:
            say(f'{bag} is left out: it was not saved as a success or a failure')
            continue
        for entry in reader.read(pixels=True):
            if not stamps or entry.stamp_ns - stamps[-1] >= _PERIOD_S * 0.9e9:
                assert isinstance(entry.value, Picture)
                assert entry.value.pixels is not None
                stamps.append(entry.stamp_ns)
                pictures.append(colored(frame(image, entry.value.pixels)))
        if reader.faults:
            # Its last picture need not be the end of the episode.
            raise ValueError(f'{reader.faults[0]}; move this episode out of the folder')
        if not pictures:
            raise ValueError(f'{bag}: no image on {image.topic}, that of --image {image.name}')
        before = (stamps[-1] - np.array(stamps)) * 1e-9
        labels = before <= config.positive_seconds if success else before < 0.0
        sure = labels | (before > config.positive_seconds + config.unsure_seconds) | (not success)
        yield Shown(np.stack(pictures)[sure], labels[sure])


_SORTED = ('success', 'failure')


def _sorted_pictures(folder: Path, image: ImageTopic) -> Iterator[Shown]:
    for name in _SORTED:
        files = sorted(each for each in (folder / name).glob('*')
                       if each.suffix.lower() in ('.png', '.jpg', '.jpeg'))
        if not files:
            raise ValueError(f'{folder / name}: no pictures: *.png or *.jpg')
        for part in np.array_split(np.array(files), min(len(files), 2 * _HELD_OUT)):
            pictures = []
            for file in part:
                try:
                    pictures.append(colored(frame(image, images.decode(file.read_bytes()))))
                except ValueError as error:
                    raise ValueError(f'{file}: {error}') from None
            yield Shown(np.stack(pictures), np.full(len(pictures), name == 'success'))


def split(episodes: Sequence[Shown]) -> tuple[list[Shown], list[Shown]]:
    """Return the episodes to learn from, and those held out: each fifth of either kind."""
    parts: tuple[list[Shown], list[Shown]] = [], []
    for shows in (True, False):
        kind = [each for each in episodes if each.labels.any() == shows]
        for index, episode in enumerate(kind, 1):
            parts[index % _HELD_OUT == 0].append(episode)
    return parts


class SuccessNetwork(nn.Module):
    """Four convolutions; logits [B] for pictures, float [B, 3, height, width] from 0 to 1."""

    def __init__(self, size: Sequence[int]) -> None:
        super().__init__()
        widths, layers, sides = (3, 16, 32, 64, 64), list[nn.Module](), size
        for before, after in itertools.pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
            sides = (sides[0] + 1) // 2, (sides[1] + 1) // 2
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(widths[-1] * math.prod(sides), 1))

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.layers(pictures - 0.5)[:, 0]
        return found


class _Graph(nn.Module):
    """Probabilities, float [B], for pictures as they come, uint8 [B, height, width, 3]."""

    def __init__(self, network: SuccessNetwork) -> None:
        super().__init__()
        self.network = network.eval()

    def forward(self, pictures: Tensor) -> Tensor:
        return torch.sigmoid(self.network(to_float(pictures)))


@dataclass(frozen=True)
class Counts:
    """How pictures were classified at a threshold: successes found and missed, and the others."""

    threshold: float
    found: int
    missed: int
    wrong: int
    right: int

    @classmethod
    def at(
        cls, threshold: float, probabilities: NDArray[np.float32], labels: NDArray[np.bool_],
    ) -> 'Counts':
        chosen = probabilities >= threshold
        return cls(threshold, *(int(each.sum()) for each in (
            chosen & labels, ~chosen & labels, chosen & ~labels, ~chosen & ~labels)))

    @property
    def precision(self) -> float:
        return self.found / max(self.found + self.wrong, 1)

    @property
    def recall(self) -> float:
        return self.found / max(self.found + self.missed, 1)

    @property
    def quality(self) -> float:
        """Return F0.5: a policy that learns from a success that is none learns to deceive."""
        both = 0.25 * self.precision + self.recall
        return 1.25 * self.precision * self.recall / both if both else 0.0


def choose_threshold(probabilities: NDArray[np.float32], labels: NDArray[np.bool_]) -> Counts:
    """Return the counts at the best threshold from 0.5 on, in the middle of equally good ones."""
    counts = [Counts.at(each, probabilities, labels)
              for each in np.linspace(0.5, 0.99, 50).round(2).tolist()]
    most = max(each.quality for each in counts)
    best = [each for each in counts if each.quality == most]
    return best[len(best) // 2]


def train(
    episodes: Sequence[Shown], image: ImageTopic, config: SuccessConfig, say: Say,
) -> tuple[bytes, Counts]:
    """Train on labelled episodes; return the bytes of the file, and how it did on the held out.

    Raises:
        ValueError: the file cannot be made, or differs from PyTorch.
    """
    learned, held_out = (_together(part) for part in split(episodes))
    for (_, labels), name in ((learned, 'learned from'), (held_out, 'held out')):
        if labels.all():
            raise ValueError(f'of what is {name}, all pictures show success: too few others')
    say(f'{len(episodes)} episodes; {_numbers(learned[1])} to learn from, '
        f'{_numbers(held_out[1])} held out')
    network = _fit(*learned, config, say)
    graph = _Graph(network)
    with torch.inference_mode():
        probabilities = np.concatenate([
            graph(torch.from_numpy(each)).numpy()
            for each in np.array_split(held_out[0], math.ceil(len(held_out[0]) / 256))])
    counts = choose_threshold(probabilities, held_out[1])
    metadata: dict[str, Any] = {
        'format': FORMAT, 'kind': 'success', 'size': image.size, 'threshold': counts.threshold,
        'held_out': {**asdict(counts), 'precision': counts.precision,
                     'recall': counts.recall},
        'training': asdict(config), 'image': to_builtins(image)}
    data = serialize_onnx(graph, {PICTURE: torch.from_numpy(held_out[0][:2])}, [PROBABILITY],
                          metadata)
    classify = Classifier(data)
    away = max(abs(classify(picture) - float(probability))
               for picture, probability in zip(held_out[0][:64], probabilities, strict=False))
    if not away <= _TOLERANCE:
        raise ValueError(f'onnxruntime differs from PyTorch by {away:.2g}, more than {_TOLERANCE}')
    return data, counts


_TOLERANCE = 1e-4
_BATCH, _RATE, _DECAY = 64, 2e-3, 1e-2
# Largest shift of a picture, as a share of its size.
_SHIFT = 1 / 24


def _together(episodes: Sequence[Shown]) -> tuple[Pictures, NDArray[np.bool_]]:
    return (np.concatenate([each.pictures for each in episodes]),
            np.concatenate([each.labels for each in episodes]))


def _numbers(labels: NDArray[np.bool_]) -> str:
    return f'{labels.sum():,} pictures of success and {(~labels).sum():,} others'


def _fit(
    pictures: Pictures, labels: NDArray[np.bool_], config: SuccessConfig, say: Say,
) -> SuccessNetwork:
    """Return a network that has learned, of either kind from half of each batch."""
    torch.manual_seed(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    network, progress = SuccessNetwork(pictures.shape[1:3]), Progress(say)
    optimizer = torch.optim.AdamW(network.parameters(), _RATE, weight_decay=_DECAY)
    kinds = [torch.from_numpy(np.flatnonzero(labels == kind)) for kind in (True, False)]
    targets = torch.arange(_BATCH).lt(_BATCH // 2).float()
    began, rest = time.monotonic(), 60.0 * config.minutes
    for step in range(config.steps):
        share = max(step / config.steps, (time.monotonic() - began) / rest)
        if share >= 1.0:
            break
        for group in optimizer.param_groups:
            group['lr'] = _RATE * (0.505 + 0.495 * math.cos(math.pi * share))
        chosen = torch.cat([kind[torch.randint(len(kind), (_BATCH // 2,), generator=generator)]
                            for kind in kinds])
        seen = relight(_shift(to_float(torch.from_numpy(pictures[chosen])), generator), generator)
        loss = functional.binary_cross_entropy_with_logits(network(seen.clamp(0.0, 1.0)), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        progress(f'{100 * share:3.0f} %  step {step + 1} of {config.steps}  loss {loss:.4f}')
    return network


def _shift(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Return pictures that are shifted by some pixels, each of them another way."""
    count, _, height, width = pictures.shape
    most = max(1, round(_SHIFT * width))
    padded = functional.pad(pictures, (most,) * 4, mode='replicate')
    rows, columns = torch.randint(2 * most + 1, (2, count), generator=generator).tolist()
    return torch.stack([each[:, row:row + height, column:column + width]
                        for each, row, column in zip(padded, rows, columns, strict=True)])

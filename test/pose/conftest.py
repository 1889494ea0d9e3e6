"""Small data sets of labelled frames, pictures made by numpy, and a small network."""

import numpy as np
import pytest
import torch

from vdl_ros.pose.frames import FrameWriter
from vdl_ros.pose.networks import MODELS, POINTS, Raw


def labels(index):
    """Return camera (3) and joints (5) of a frame."""
    random = np.random.default_rng([7, index])
    return (random.uniform([0.55, 0.0, -3.1], [1.0, 1.0, 3.1]),
            random.uniform([-2.0, -1.3, -2.7, -0.9, 0.0], [2.0, 1.5, 2.7, 0.9, 0.3]))


def picture(index, size=(128, 128)):
    return np.random.default_rng([8, index]).integers(0, 256, (*size, 3), np.uint8)


class Data:
    """Writes data sets."""

    def __init__(self, folder):
        self._folder = folder
        self.labels, self.picture = labels, picture

    def write(self, name, frames, *, size=(128, 128), seed=7, **arm):
        """Write a data set, or append to it, and return its folder."""
        writer = FrameWriter(
            self._folder / name, size, ['camera_roll', 'lamp'], {'seed': seed, **arm})
        for index in range(writer.frames, frames):
            camera, joints = labels(index)
            writer.write(picture(index, size), joints, camera, 160.0 / 128,
                         {'camera_roll': 0.01 * index})
        writer.close()
        return self._folder / name


@pytest.fixture
def data_sets(tmp_path):
    return Data(tmp_path)


class SmallNetwork(torch.nn.Module):
    """A network with the outputs of the real ones that is trained within a moment."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 8, 8)
        self.second = torch.nn.Conv2d(8, 8, 4, 4)
        self.hidden = torch.nn.Linear(128, 32)
        self.head = torch.nn.Linear(32, 17 + 3 * len(POINTS))

    def forward(self, pictures):
        x = self.second(self.first(pictures - 0.5).relu()).relu()
        x = self.head(self.hidden(x.flatten(1)).relu())
        return Raw(x[:, :11], x[:, 11:17].clamp(-6.0, 1.5), x[:, 17:].unflatten(-1, (-1, 3)))


@pytest.fixture
def small_network(monkeypatch):
    """Let the small network be called resnet."""
    monkeypatch.setitem(MODELS, 'resnet', SmallNetwork)

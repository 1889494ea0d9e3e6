"""Small data sets and bags of labelled frames, pictures made by numpy, and a small network."""

import numpy as np
import pytest
import torch
from bag_files import stamp, write_bag
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Header

from vdl_ros.arm.joints import JOINTS
from vdl_ros.msg import CaptureScene
from vdl_ros.pose.frames import FrameWriter
from vdl_ros.pose.networks import MODELS, POINTS, Raw

TOPICS = ('camera/image_raw', 'camera/camera_info', 'arm/joint_states', 'capture/scene')


def header(index):
    return Header(frame_id='camera', stamp=stamp((index + 1) * 33_000_000))


def labels(index):
    """Return camera (3) and joints (5) of a frame."""
    random = np.random.default_rng([7, index])
    return (random.uniform([0.55, 0.0, -3.1], [1.0, 1.0, 3.1]),
            random.uniform([-2.0, -1.3, -2.7, -0.9, 0.0], [2.0, 1.5, 2.7, 0.9, 0.3]))


def picture(index, size=(128, 128)):
    """Return bars that encode the six values, and noise that identifies the frame."""
    camera, joints = labels(index)
    values = np.concatenate([[camera[0] * 4 - 3], camera[1:] / 3.2, joints[:3] / 2.8])
    pixels = np.random.default_rng([8, index]).integers(0, 60, (*size, 3), np.uint8)
    for row, value in enumerate(values):
        middle = int((value + 1.0) / 2.0 * (size[1] - 1))
        top = row * size[0] // 6
        pixels[top:top + size[0] // 6, max(0, middle - 4):middle + 4] = 255 - 30 * row
    return pixels


def frame(index, size=(128, 128)):
    """Return the messages of one frame by topic."""
    camera, joints = labels(index)
    pixels = picture(index, size)
    image = Image(header=header(index), height=size[0], width=size[1], encoding='rgb8',
                  step=3 * size[1])
    image.data.frombytes(pixels.tobytes())
    info = CameraInfo(header=header(index), height=size[0], width=size[1],
                      k=[160.0, 0.0, 63.5, 0.0, 160.0, 63.5, 0.0, 0.0, 1.0])
    scene = CaptureScene(
        header=header(index), index=index, seed=7, split='train', domain='random',
        camera_distance=camera[0], camera_elevation=camera[1], camera_azimuth=camera[2],
        name=['camera_roll'], value=[0.01 * index])
    states = JointState(header=header(index), name=list(JOINTS), position=joints.tolist())
    return {'camera/image_raw': image, 'camera/camera_info': info, 'arm/joint_states': states,
            'capture/scene': scene}


class Data:
    """Writes data sets and bags."""

    def __init__(self, folder):
        self._folder = folder
        self.labels, self.picture = labels, picture

    def write(self, name, frames, *, size=(128, 128), seed=7):
        """Write a data set, or append to it, and return its folder."""
        writer = FrameWriter(self._folder / name, size, ['camera_roll', 'lamp'], {'seed': seed})
        for index in range(writer.frames, frames):
            camera, joints = labels(index)
            writer.write(picture(index, size), joints, camera, 160.0 / 128,
                         {'camera_roll': 0.01 * index})
        writer.close()
        return self._folder / name

    def write_bag(self, name, frames, *, change=None, topics=TOPICS, **options):
        """Write a bag of frames that ``change`` may change; None in place of a message: none."""
        messages = []
        for index in range(frames):
            found = frame(index)
            if change is not None:
                change(index, found)
            messages += [((index + 1) * 33_000_000, f'/{topic}', found[topic])
                         for topic in topics if found[topic] is not None]
        return write_bag(self._folder / name, messages, **options)

    def file(self, path):
        return path / f'{path.name}_0.mcap'


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

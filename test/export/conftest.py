"""Bags of a moving arm, and of captured frames."""

import pytest
from bag_files import START_NS, BagBuilder, add_scenario, picture

from vdl_ros.pose.frames import FrameWriter


@pytest.fixture
def builder(tmp_path):
    return BagBuilder(tmp_path / 'bag')


@pytest.fixture
def teleop(builder):
    """Return a bag of two sequences, of 40 and 25 images at 20 Hz, and the images' stamps."""
    first = add_scenario(builder, 40)
    second = add_scenario(builder, 25, begin_ns=START_NS + 10 * 10**9)
    return builder.write(), [first, second]


@pytest.fixture
def captured(tmp_path):
    """Return a data set of 12 captured frames, and the camera of each."""
    cameras = [(0.6 + 0.01 * number, 0.1 * number, -3.0 + 0.5 * number) for number in range(12)]
    writer = FrameWriter(tmp_path / 'frames', (32, 48), [], {})
    for number, camera in enumerate(cameras):
        writer.write(picture(number), [0.1 * number, -0.2, 0.3, 0.0, 0.1], camera, 1.0, {})
    writer.close()
    return tmp_path / 'frames', cameras

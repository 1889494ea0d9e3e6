"""The data set of captured frames: random access, matching by stamp, and damaged bags."""

import numpy as np
import pytest
import torch
from rclpy.serialization import serialize_message
from torch.utils.data import DataLoader

from vdl_ros.bags.reader import BagError
from vdl_ros.pose.dataset import DataError, PoseDataset, keep_batch


def collect(data, **options):
    """Return pictures, targets and indices of all frames, by a DataLoader."""
    loader = DataLoader(data, batch_size=8, collate_fn=keep_batch, **options)
    return [torch.cat(parts) for parts in zip(*loader, strict=True)]


@pytest.mark.parametrize('compression', ['none', 'zstd', 'lz4'])
def test_every_frame_can_be_read_in_any_order(bags, compression):
    data = PoseDataset([bags.write('some', 30, compression=compression), bags.write('two', 12)])
    assert len(data) == 42
    assert data.compressed == (compression != 'none')
    assert not data.skipped
    for row in np.random.default_rng(0).permutation(42).tolist():
        index = row % 30
        camera, joints = bags.labels(index)
        pixels, target = data[row]
        np.testing.assert_array_equal(pixels.numpy(), bags.picture(index))
        np.testing.assert_allclose(target, [*camera, *joints[:3]], rtol=1e-6)
        np.testing.assert_allclose(data.joints[row], joints)
        assert data.parameters['camera_roll'][row] == 0.01 * index
    assert data.focal[0] == 160.0 / 128
    # A batch keeps its order.
    chosen = [35, 3, 29, 3, 30, 0]
    pictures, targets, indices = data.__getitems__(chosen)
    assert indices.tolist() == chosen
    assert torch.equal(pictures, torch.stack([data[each][0] for each in chosen]))
    assert torch.equal(targets, data.targets[chosen])


def test_messages_are_matched_by_their_stamps(bags):
    late = {}

    def one_late(index, messages):
        # Joints come one frame later than the picture they belong to.
        late[index] = messages['arm/joint_states']
        messages['arm/joint_states'] = late.get(index - 1)

    data = PoseDataset([bags.write('late', 10, change=one_late)])
    assert len(data) == 9
    assert data.skipped == {'picture without arm/joint_states': 1}
    np.testing.assert_allclose(data.joints[4], bags.labels(4)[1])


def test_malformed_messages_are_skipped_and_counted_by_reason(bags):
    def breaking(index, messages):
        image, states, scene = (messages[topic] for topic in (
            'camera/image_raw', 'arm/joint_states', 'capture/scene'))
        if index == 1:
            messages['camera/image_raw'] = serialize_message(image)[:-100]
        elif index == 2:
            image.encoding = 'bgr8'
        elif index == 3:
            image.height, image.width = 64, 64
        elif index == 4:
            del image.data[-30:]
        elif index == 5:
            states.name[2] = 'knee'
        elif index == 6:
            states.position[0] = float('nan')
        elif index == 7:
            scene.camera_azimuth = float('inf')
        elif index == 8:
            messages['capture/scene'] = b'\xff' * 40
        elif index == 9:
            states.position.pop()

    data = PoseDataset([bags.write('broken', 12, change=breaking)])
    assert len(data) == 3
    np.testing.assert_array_equal(data[1][0].numpy(), bags.picture(10))
    assert data.skipped == {
        'camera/image_raw: truncated or malformed': 1,
        "picture of encoding 'bgr8' instead of rgb8": 1,
        'picture of 64x64 instead of 128x128 pixels': 1,
        'picture with more or fewer bytes than pixels': 1,
        'arm/joint_states without elbow': 1, 'arm/joint_states without base': 1,
        'capture/scene without a camera': 1, 'capture/scene: truncated or malformed': 1,
        'picture without capture/scene': 1,
        'arm/joint_states: names and values differ in number': 1,
        'picture without arm/joint_states': 1}
    assert '1 x picture with more or fewer bytes than pixels' in data.report()


def test_bags_without_usable_frames_are_errors_of_one_line(bags, tmp_path):
    def other_size(_, messages):
        messages['camera/image_raw'].height = 64

    def other_encoding(_, messages):
        messages['camera/image_raw'].encoding = 'mono8'

    empty_file = tmp_path / 'empty.mcap'
    empty_file.write_bytes(b'')
    text = tmp_path / 'text.mcap'
    text.write_text('no bag at all')
    (tmp_path / 'folder').mkdir()
    cut = bags.write('cut', 2)
    bags.file(cut).write_bytes(bags.file(cut).read_bytes()[:3000])
    no_labels = ['camera/image_raw', 'camera/camera_info', 'arm/joint_states']
    wrong_types = dict.fromkeys((*no_labels, 'capture/scene'), 'sensor_msgs/msg/Image')
    for path, reason in (
            (empty_file, 'the file is empty'), (text, 'not an MCAP file'),
            (tmp_path / 'folder', 'no bag is there'), (tmp_path / 'nowhere', 'no bag is there'),
            (cut, 'cut off before one whole message'),
            (bags.write('none', 0), 'it has not one whole message'),
            (bags.write('small', 3, change=other_size),
             'no frame can be used: picture of 128x64 instead of 128x128 pixels (3 times)'),
            (bags.write('grey', 3, change=other_encoding), "encoding 'mono8' instead of rgb8"),
            (bags.write('blind', 3, topics=no_labels),
             'no topic capture/scene: labels are missing'),
            (bags.write('types', 3, types=wrong_types), 'not sensor_msgs/msg/CameraInfo')):
        with pytest.raises((BagError, DataError)) as raised:
            PoseDataset([path])
        assert reason in str(raised.value)
        assert str(path) in str(raised.value)
        assert '\n' not in str(raised.value)

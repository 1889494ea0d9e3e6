"""`ros2 launch vdl_ros capture.launch.py`: complete labelled frames, and resuming."""

import signal

import av
import numpy as np
import pytest
import yaml
from rosbags.highlevel import AnyReader

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.bags.reader import BagReader
from vdl_ros.nodes import capture as capture_node
from vdl_ros.pose.domain_randomization import RandomizedScene, sample

TOPICS = {'/capture/scene', '/arm/joint_states', '/camera/camera_info', '/camera/image_raw'}


@pytest.fixture
def capture(launch):
    def start(output, *arguments):
        return launch('ros2', 'launch', 'vdl_ros', 'capture.launch.py', f'output:={output}',
                      'image_width:=64', 'image_height:=64', *arguments)
    return start


def read(bag, count):
    """
    Return the messages by topic, as another library reads them by the bag's index.

    Each frame is there once, and its messages have one stamp.
    """
    found = {topic: [] for topic in TOPICS}
    with AnyReader([bag]) as reader:
        assert {each.topic for each in reader.connections} == TOPICS
        for connection, stamp, data in reader.messages():
            message = reader.deserialize(data, connection.msgtype)
            header = message.header.stamp
            assert header.sec * 10**9 + header.nanosec == stamp
            found[connection.topic].append(message)
    stamps = [[(each.header.stamp.sec, each.header.stamp.nanosec) for each in messages]
              for messages in found.values()]
    assert all(each == stamps[0] for each in stamps)
    assert [each.index for each in found['/capture/scene']] == list(range(count))
    metadata = yaml.safe_load((bag / 'metadata.yaml').read_text())[
        'rosbag2_bagfile_information']
    assert metadata['message_count'] == 4 * count
    assert sorted(metadata['relative_file_paths']) == sorted(
        each.name for each in bag.glob('*.mcap'))
    return found


def check_frames(found, indices):
    """Check that frames are what seed and number determine."""
    renderer = RandomizedScene(load(), 64, 64)
    try:
        for index in indices:
            scene = found['/capture/scene'][index]
            state = found['/arm/joint_states'][index]
            # The arm was put there by the twin, which may have drawn again; the rest is its own.
            frame = sample('train', 7, index, 'random', load(), lambda positions, state=state:
                           np.allclose(positions, state.position, atol=1e-9))
            assert list(state.name) == list(JOINTS)
            assert (scene.domain, scene.split, scene.seed) == ('random', 'train', 7)
            assert dict(zip(scene.name, scene.value, strict=True)) == frame.look
            picture = renderer.draw(np.array(state.position), frame.distance, frame.elevation,
                                    frame.azimuth, frame.look)
            image = found['/camera/image_raw'][index]
            np.testing.assert_array_equal(image.data.reshape(64, 64, 3), picture)
            np.testing.assert_allclose(
                found['/camera/camera_info'][index].k.reshape(3, 3), renderer.matrix)
    finally:
        renderer.close()


@pytest.mark.parametrize('number', [
    signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_frames_match_their_labels_also_of_a_capture_that_is_interrupted_and_resumed(
        capture, run_here, tmp_path, number):
    bag = tmp_path / 'bag'
    first = capture(bag, 'frames:=100000', 'seed:=7')
    first.wait_for(lambda: first.nodes('capture') and sum(
        each.stat().st_size for each in bag.glob('*.mcap')) > 1_000_000, 'some frames')
    if number == signal.SIGINT:
        first.interrupt()
        assert first.wait() == 0
        assert 'the same command resumes' in first.output
    else:
        first.nodes('capture')[0].kill()
        assert first.wait() == 1
    files = list(bag.glob('*.mcap'))
    # More than there are, however fast this machine was.
    count = sum(message.topic == '/capture/scene' for message in BagReader(bag))
    total = count + 100
    second = capture(bag, f'frames:={total}', 'seed:=7')
    assert second.wait() == 0
    assert 'frames are there already' in second.output
    assert f'{total} of {total} frames captured' in second.output
    assert len(list(bag.glob('*.mcap'))) == len(files) + 1
    check_frames(read(bag, total), (0, count // 2, total - 1))
    # Nothing to do is no mistake.
    before = {each.name: (each.stat().st_mtime_ns, each.stat().st_size) for each in bag.iterdir()}
    status, said = run_here(capture_node.main, f'output:={bag}', f'frames:={total}', 'seed:=7')
    assert status == 0, said
    assert before == {
        each.name: (each.stat().st_mtime_ns, each.stat().st_size) for each in bag.iterdir()}
    for folder, reason in ((bag, 'seed: 1 is not allowed: the capture in'),
                           (tmp_path, 'exists and is no capture')):
        status, said = run_here(
            capture_node.main, f'output:={folder}', 'frames:=100000', 'seed:=1')
        assert status == 2
        assert reason in said


def save(pixels, path):
    with av.open(str(path), 'w', format='image2') as container:
        stream = container.add_stream('png', rate=1)
        stream.width, stream.height, stream.pix_fmt = 64, 64, 'rgb24'
        frame = av.VideoFrame.from_ndarray(pixels, format='rgb24')
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)


@pytest.mark.slow
def test_pictures_of_a_real_camera_have_no_labels(capture, tmp_path):
    movie = tmp_path / 'pictures'
    movie.mkdir()
    for number in range(5):
        save(np.full((64, 64, 3), 40 * number, np.uint8), movie / f'{number}.png')
    process = capture(tmp_path / 'bag', 'arm:=real', f'device:={movie}', 'frames:=12')
    assert process.wait() == 0
    assert 'pictures without labels' in process.output
    with AnyReader([tmp_path / 'bag']) as reader:
        topics = [each[0].topic for each in reader.messages()]
    assert topics.count('/camera/image_raw') == topics.count('/camera/camera_info') == 12

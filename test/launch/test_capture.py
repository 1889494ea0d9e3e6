"""`ros2 launch vdl_ros capture.launch.py`: complete labelled frames, and resuming."""

import signal

import numpy as np
import pytest

from vdl_ros.arm.geometry import load
from vdl_ros.nodes import capture as capture_node
from vdl_ros.pose.domain_randomization import RandomizedScene, sample
from vdl_ros.pose.frames import Frames


def check_frames(folder, count, indices):
    """Check that frames are what seed and number determine."""
    found = Frames(folder)
    assert len(found) == count
    scene = RandomizedScene(load(), 64, 64)
    try:
        for index in indices:
            # The twin may have drawn the joints again; the rest is its own.
            frame = sample('train', 7, index, 'random', load(), lambda positions, index=index:
                           np.array_equal(positions, found.joints[index]))
            assert frame.look == {
                name: value for name, value in zip(found.names, found.look[index], strict=True)
                if not np.isnan(value)}
            np.testing.assert_array_equal(found.camera[index], frame.camera)
            np.testing.assert_array_equal(found.images[index], scene.draw(frame))
            assert found.focal[index] == pytest.approx(scene.matrix[1, 1] / 64)
    finally:
        scene.close()


@pytest.mark.parametrize('number', [
    signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_frames_match_their_labels_also_of_a_capture_that_is_interrupted_and_resumed(
        launch, run_here, refused, tmp_path, number):
    folder = tmp_path / 'frames'
    size = ('image_width:=64', 'image_height:=64')
    first = launch.file('capture', f'output:={folder}', 'frames:=100000', 'seed:=7', *size)
    first.wait_for(lambda: folder.exists() and len(Frames(folder)), 'some frames')
    if number == signal.SIGINT:
        first.stop()
        assert 'the same command resumes' in first.output
    else:
        first.nodes('capture')[0].kill()
        assert first.wait() == 1
    # More than there are, however fast this machine was.
    count = len(Frames(folder))
    total = count + 30

    def again():
        return run_here(
            capture_node.main, f'output:={folder}', f'frames:={total}', 'seed:=7', *size)

    status, said = again()
    assert status == 0, said
    assert f'{count:,} frames are there already' in said
    assert f'{total:,} of {total:,} frames captured' in said
    check_frames(folder, total, (0, count // 2, count, total - 1))
    # Nothing to do is no mistake.
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    status, said = again()
    assert status == 0, said
    assert before == {each.name: each.read_bytes() for each in folder.iterdir()}
    for path, reason in ((folder, 'seed: 1 is not allowed: the capture in'),
                         (tmp_path, 'exists and is no data set')):
        assert reason in refused(
            capture_node.main, f'output:={path}', 'frames:=100000', 'seed:=1', *size)

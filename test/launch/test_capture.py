"""`ros2 launch vdl_ros capture.launch.py`: complete labelled frames, and resuming."""

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


SIZE = 'image_width:=64', 'image_height:=64'


@pytest.mark.slow
def test_an_interrupted_capture_says_how_it_goes_on(launch, tmp_path):
    folder = tmp_path / 'frames'
    process = launch.file('capture', f'output:={folder}', 'frames:=100000', 'seed:=7', *SIZE)
    process.wait_for(lambda: folder.exists() and len(Frames(folder)), 'some frames')
    process.stop()
    assert 'the same command resumes' in process.output


def test_frames_match_their_labels_also_of_a_capture_that_was_killed_and_is_resumed(
        run_here, refused, tmp_path):
    folder = tmp_path / 'frames'

    def capture(count):
        status, said = run_here(
            capture_node.main, f'output:={folder}', f'frames:={count}', 'seed:=7', *SIZE)
        assert status == 0, said
        return said

    capture(20)
    # As a kill leaves them: with parts of frames that no header counts.
    for number, path in enumerate(sorted(folder.glob('*.npy')), 1):
        with path.open('ab') as file:
            file.write(bytes(1000 * number + 1))
    said = capture(40)
    assert '20 frames are there already' in said
    assert '40 of 40 frames captured' in said
    check_frames(folder, 40, (0, 19, 20, 39))
    # Nothing to do is no mistake.
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    capture(40)
    assert before == {each.name: each.read_bytes() for each in folder.iterdir()}
    for path, reason in ((folder, 'seed: 1 is not allowed: the capture in'),
                         (tmp_path, 'exists and is no data set')):
        assert reason in refused(
            capture_node.main, f'output:={path}', 'frames:=100000', 'seed:=1', *SIZE)

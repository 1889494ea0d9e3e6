"""Invalid bags are errors of one line, damaged ones are exported in part; memory is bounded."""

import signal
import sys
import tracemalloc

import numpy as np
import pytest
from bag_files import (
    MS,
    START_NS,
    BagBuilder,
    add_scenario,
    check_pictures,
    picture,
    rows_of,
)
from sensor_msgs.msg import Image

from vdl_ros.export import bag_export
from vdl_ros.export.bag_export import export
from vdl_ros.export.lerobot import LeRobotWriter
from vdl_ros.export.synchronizer import ExportOptions
from vdl_ros.tools import export_dataset


def refuse(bag, tmp_path, match):
    """Expect one line, and nothing left behind."""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=match) as caught:
        export(bag, tmp_path / 'out', ExportOptions())
    assert '\n' not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_missing_empty_and_incomplete_bags_are_errors(builder, tmp_path):
    refuse(tmp_path / 'missing', tmp_path, 'no bag is there')
    refuse(BagBuilder(tmp_path / 'nothing').write(), tmp_path, 'no image on camera/image_raw')
    builder.image(START_NS, picture(0))
    refuse(builder.write(), tmp_path, 'no arm/joint_states')


def test_images_that_cannot_be_exported_are_errors(tmp_path):
    def bag(name, images, **more):
        made = BagBuilder(tmp_path / name)
        add_scenario(made, images, **more)
        return made

    made = bag('sizes', 3)
    made.image(START_NS + 150 * MS, picture(0, (24, 24)))
    refuse(made.write(), tmp_path, 'image 4 is 24 x 24 pixels, those before it 48 x 32')
    made = bag('encoding', 0)
    made.add('camera/image_raw', START_NS, Image(
        height=2, width=2, encoding='bayer_rggb8', step=2, data=[0] * 4))
    refuse(made.write(), tmp_path, "encoding 'bayer_rggb8' is not one of rgb8, bgr8")
    refuse(bag('odd', 3, size=(31, 48)).write(), tmp_path, '48 x 31 pixels make no h264 video')
    made = bag('old', 0)
    made.joints(START_NS, [0.0] * 5)
    made.image(START_NS + 800 * MS, picture(0))
    refuse(made.write(), tmp_path, '1 images, but no arm/joint_states at their times')


def test_the_namespace_selects_one_of_two_arms(tmp_path):
    bag = BagBuilder(tmp_path / 'bag', prefix='/left')
    add_scenario(bag, 4)
    bag.prefix = '/right'
    add_scenario(bag, 6, size=(20, 20))
    path = bag.write()
    refuse(path, tmp_path, '/left/.* and /right/.*: choose one with --namespace')
    assert export(path, tmp_path / 'out', ExportOptions(namespace='/right')).rows == 6


def test_a_damaged_bag_is_exported_up_to_the_damage(builder, tmp_path):
    add_scenario(builder, 600)
    bag = builder.write()
    file = bag / 'bag_0.mcap'
    whole = file.read_bytes()
    # A chunk whose bytes changed: as far as the one before it.
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + b'\xff' * 5000 + whole[middle + 5000:])
    found = export(bag, tmp_path / 'out', ExportOptions())
    assert any('cut off or damaged' in note for note in found.notes)
    assert 100 < found.rows < 600
    check_pictures(tmp_path / 'out', range(found.rows))


def test_malformed_messages_are_skipped_and_counted(builder, tmp_path):
    stamps = add_scenario(builder, 10)
    period = stamps[1] - stamps[0]
    builder.add('camera/image_raw', stamps[-1] + period, Image(
        height=32, width=48, encoding='rgb8', step=144, data=[0] * 100))
    builder.joints(stamps[-1] + 3, [0.0] * 4)
    builder.joints(stamps[-1] + 4, [float('nan')] * 5)
    builder.motors(stamps[-1] + 5, [7, 0, 0, 0, 0])
    found = export(builder.write(), tmp_path / 'out', ExportOptions())
    assert found.rows == 10
    notes = '\n'.join(found.notes)
    assert 'left out 1 messages: camera/image_raw: an image that is damaged' in notes
    assert 'left out 1 messages: arm/motors_sent: a motor is commanded' in notes
    assert 'left out 1 messages: arm/joint_states: names and values' in notes


def test_images_without_joints_and_resampled_rows_are_counted(builder, tmp_path, capsys):
    early = START_NS - 100 * MS
    builder.image(early, picture(0))
    stamps = add_scenario(builder, 30)
    gone = {stamps[10], stamps[11], stamps[20]}
    builder.messages = [each for each in builder.messages if not (
        each[1] == '/camera/image_raw' and each[0] - 2 * MS in gone)]
    bag = builder.write()
    refuse(bag, tmp_path, 'image 11 comes 0.1500 s after the one before it and 0.1000 s after the '
           'time of its row')
    assert export_dataset.main([str(bag), '--resample', '--output', str(tmp_path / 'first')]) == 0
    assert capsys.readouterr().out.endswith(' at 20 frames/s; 1 images became no row\n')
    found = export(bag, tmp_path / 'out', ExportOptions(resample=True))
    assert '1 images became no row: without joint states of their time' in found.notes
    assert '3 rows repeat the image before' in found.notes
    assert (found.images, found.rows) == (28, 30)
    check_pictures(tmp_path / 'out', [
        9 if each in (10, 11) else 19 if each == 20 else each for each in range(30)])


def test_a_joint_that_is_unknown_at_first_or_published_apart_is_in_every_row(builder, tmp_path):
    """On one topic, the gripper at its own times, and the wrist never."""
    nan = float('nan')
    for number in range(20):
        ns = START_NS + number * 50 * MS
        builder.joints(ns, [0.0, 0.1, number, nan, nan])
        if number >= 2:
            builder.joints(ns - 20 * MS, [nan] * 4 + [number])
        builder.image(ns, picture(number), late_ns=1 * MS)
    found = export(builder.write(), tmp_path / 'out', ExportOptions())
    assert found.joints == ('base', 'shoulder', 'elbow', 'gripper')
    assert '2 images became no row: without gripper of their time' in found.notes
    assert 'never known, so that rows do not have it: wrist' in found.notes
    np.testing.assert_allclose(
        [row['observation.state'][2:] for row in rows_of(tmp_path / 'out')],
        [[number, number] for number in range(2, 20)])


def test_an_action_is_what_is_commanded_until_the_next_row_and_the_last_one_is_kept(
        builder, tmp_path):
    stamps = [START_NS + number * 50 * MS for number in range(60)]
    for number, ns in enumerate(stamps):
        builder.image(ns, picture(number))
        builder.joints(ns, [0.0] * 5)
    # Of most of the time before the next image, and of little of it.
    builder.motors(stamps[3] + 20 * MS, [1, 0, -1, 0, 0])
    builder.motors(stamps[5] - 20 * MS, [0, 1, 0, 0, 1])
    export(builder.write(), tmp_path / 'out', ExportOptions())
    assert [row['action'] for row in rows_of(tmp_path / 'out')] == [
        [0, 0, 0, 0, 0]] * 3 + [[1, 0, -1, 0, 0]] * 2 + [[0, 1, 0, 0, 1]] * 55


def test_a_missing_library_a_lost_row_and_an_interruption_leave_nothing(
        teleop, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, 'pyarrow', None)
        refuse(teleop[0], tmp_path, 'need pyarrow, which is not installed here: pip install pya')

    def stop(what, done, total):
        if what == 'writing' and done == 30:
            raise KeyboardInterrupt

    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        export(teleop[0], tmp_path / 'out', ExportOptions(), progress=stop)
    assert sorted(tmp_path.iterdir()) == before

    class Loses(LeRobotWriter):
        def write(self, task, rows, **given):
            super().write(
                task, (row for number, row in enumerate(rows) if number != 30), **given)

    monkeypatch.setattr(bag_export, 'LeRobotWriter', Loses)
    refuse(teleop[0], tmp_path, '64 rows in 2 episodes were written instead of 65')


def test_the_command_prints_counts_and_one_line_for_bad_input_and_a_signal(
        teleop, tmp_path, capsys, monkeypatch):
    words = [str(teleop[0]), '--output', str(tmp_path / 'out')]
    assert export_dataset.main(words) == 0
    output = capsys.readouterr()
    assert '65 images, 65 rows in 2 episodes at 20 frames/s; all readable images' in output.out
    assert 'writing 65 of 65 rows (100 %)' in output.err
    assert export_dataset.main(words) == 2
    assert capsys.readouterr().err == (
        f'export_dataset: {tmp_path / "out"} exists; name another output\n')

    class Ended(LeRobotWriter):
        def close(self):
            assert list(tmp_path.glob('.other.partial/new/*'))
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(bag_export, 'LeRobotWriter', Ended)
    words[-1] = str(tmp_path / 'other')
    assert export_dataset.main(words) == 130
    assert f'interrupted: {tmp_path / "other"} was not made' in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ['bag', 'out']


def test_memory_does_not_grow_with_the_bag(builder, tmp_path):
    shown = picture(0, (240, 320))
    for number in range(200):
        ns = START_NS + number * 40 * MS
        builder.joints(ns, [0.1] * 5)
        builder.image(ns, shown)
    bag = builder.write()
    builder.messages.clear()
    tracemalloc.start()
    try:
        export(bag, tmp_path / 'out', ExportOptions())
        assert tracemalloc.get_traced_memory()[1] < 100 * shown.nbytes
    finally:
        tracemalloc.stop()

"""A classifier of success: which frames show it, what is held out, the file, what is refused."""

import json

import numpy as np
import onnx
import pytest
import yaml
from bag_files import MS, START_NS, BagBuilder
from PIL import Image
from robot_contract import GOOD

from vdl_ros.bags.reader import EpisodeLabels
from vdl_ros.common.onnx_file import KEY, OnnxFileError
from vdl_ros.common.schema import converted
from vdl_ros.demonstrations import success
from vdl_ros.demonstrations.success import (
    Shown,
    SuccessConfig,
    choose_threshold,
    read_episodes,
    split,
)
from vdl_ros.robots.classifier import classifier_of, load_classifier
from vdl_ros.robots.contract import ContractError, ImageTopic
from vdl_ros.robots.contract_files import read_contract
from vdl_ros.robots.observer import frame
from vdl_ros.tools.train_success import main

CONFIG = SuccessConfig(steps=40, positive_seconds=0.4, unsure_seconds=0.5)
CAMERA = {'name': 'camera', 'topic': 'camera/image_raw', 'size': [40, 36], 'crop': [0, 0, 64, 44]}
IMAGE = converted(CAMERA, ImageTopic, 'image', ValueError)


def scene(place, random):
    """Return a noisy picture of 48 x 64 with a bright square; it belongs at the right edge."""
    pixels = random.integers(40, 90, (48, 64, 3))
    top, left = 8 + int(random.integers(20)), int(place * 50)
    pixels[top:top + 12, left:left + 12] += 140
    return pixels.astype(np.uint8)


def record(folder, number, is_success=True, frames=20):
    """Write an episode of 10 pictures a second, in which the square goes to the right edge."""
    random, path = np.random.default_rng(number), folder / f'episode_{number:04d}'
    bag = BagBuilder(path)
    for index in range(frames):
        share = min(1.0, index / (frames - 10)) if is_success else random.uniform(0.0, 0.7)
        bag.image(START_NS + index * 100 * MS, scene(share, random))
    bag.write(EpisodeLabels('put', is_success, 'mine'))
    return path


@pytest.fixture(scope='module')
def demos(tmp_path_factory):
    """Return a folder of 10 episodes that were saved as a success, and 5 as a failure."""
    folder = tmp_path_factory.mktemp('demos')
    for number in range(15):
        record(folder, number, number % 3 != 2)
    return folder


@pytest.fixture
def run(tmp_path):
    """Return what runs the tool with the contract of a robot that has a camera."""
    robot = tmp_path / 'mine.yaml'
    robot.write_text(yaml.safe_dump(GOOD | {'images': [
        CAMERA, {'name': 'all', 'topic': 'camera/image_raw'}]}))
    return lambda data, output, *rest: main([
        '--data', str(data), '--robot', str(robot), '--output', str(tmp_path / output), *rest])


@pytest.fixture(scope='module')
def trained(demos):
    """Return a file, and what was printed of it."""
    path = demos.parent / 'trained.onnx'
    data, counts = success.train(
        read_episodes(demos, IMAGE, CONFIG, print), IMAGE, CONFIG, print)
    path.write_bytes(data)
    return path, counts


def test_the_end_of_a_success_shows_it_and_nobody_knows_of_what_is_just_before(demos):
    episodes = read_episodes(demos, IMAGE, CONFIG, print)
    won, lost = episodes[0], episodes[2]
    # Of 20 pictures the last five are within 0.4 s of the last one; five before are left out.
    assert won.labels.tolist() == [False] * 10 + [True] * 5
    assert lost.labels.tolist() == [False] * 20
    assert won.pictures.shape == (15, 36, 40, 3)


def test_pictures_whose_stamp_says_nothing_count_from_their_recording(tmp_path):
    for number in range(5):
        bag = BagBuilder(tmp_path / f'episode_{number:04d}')
        for index in range(20):
            bag.image(0, scene(0.5, np.random.default_rng(number)),
                      late_ns=START_NS + index * 100 * MS)
        bag.write(EpisodeLabels('put', True, 'mine'))
    image = converted(CAMERA | {'stamped': False}, ImageTopic, 'image', ValueError)
    assert [len(each.labels) for each in read_episodes(tmp_path, image, CONFIG, print)] == [15] * 5


def test_whole_episodes_of_either_kind_are_held_out():
    episodes = [Shown(np.full((3, 1, 1, 3), number, np.uint8), np.arange(3) == 2 * (number % 2))
                for number in range(10)]
    episodes += [Shown(np.full((3, 1, 1, 3), 10 + number, np.uint8), np.zeros(3, np.bool_))
                 for number in range(6)]
    learned, held_out = ([int(each.pictures[0, 0, 0, 0]) for each in part]
                         for part in split(episodes))
    assert sorted(learned + held_out) == list(range(16))
    assert held_out == [4, 9, 14]


def test_pictures_of_other_episodes_are_told_apart_by_the_file_as_by_pytorch(trained):
    path, counts = trained
    assert (counts.precision, counts.recall) == (1.0, 1.0)
    assert counts.found == 10
    classify = load_classifier(path)
    random = np.random.default_rng(99)
    assert classify.metadata.threshold == counts.threshold
    reached, not_yet = (classify(frame(IMAGE, scene(place, random)))
                        for place in (1.0, 0.3))
    assert reached >= counts.threshold > not_yet
    stated = json.loads(onnx.load(path).metadata_props[0].value)
    assert stated['held_out']['precision'] == 1.0
    assert (stated['size'], stated['image']['crop']) == ([40, 36], [0, 0, 64, 44])


def test_a_file_that_differs_from_pytorch_is_not_written(
        demos, run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(success.Classifier, '__call__', lambda *_: 0.4)
    assert run(demos, 'a.onnx', '--steps', '1') == 2
    assert 'differs from PyTorch by' in capsys.readouterr().err
    assert not [*tmp_path.glob('a.onnx*')]


def test_an_image_whose_size_nobody_says_is_small(demos, run, tmp_path, capsys):
    assert run(demos, 'all.onnx', '--image', 'all', '--steps', '1') == 0
    assert 'the contract says no size of all: 64 x 64 pixels' in capsys.readouterr().out
    assert load_classifier(tmp_path / 'all.onnx').metadata.size == (64, 64)


def test_a_picture_that_is_no_success_counts_twice_in_the_threshold():
    probabilities = np.array([0.1, 0.6, 0.8, 0.9, 0.95], np.float32)
    counts = choose_threshold(probabilities, np.array([False, False, True, False, True]))
    assert 0.9 < counts.threshold < 0.95
    assert (counts.precision, counts.recall) == (1.0, 0.5)
    apart = choose_threshold(probabilities, np.array([False, False, True, True, True]))
    assert apart.threshold == pytest.approx(0.7, abs=0.02)


def test_a_person_may_have_sorted_the_pictures(run, tmp_path, capsys):
    for name, places in (('success', (1.0, 1.0)), ('failure', (0.0, 0.6))):
        (tmp_path / name).mkdir()
        for number in range(30):
            random = np.random.default_rng(number)
            Image.fromarray(scene(random.uniform(*places), random)).save(
                tmp_path / name / f'{number:02d}.png')
    assert run(tmp_path, 'sorted.onnx', '--steps', '40') == 0
    printed = capsys.readouterr().out
    assert '6 successes found, 0 missed; 6 others told apart, 0 taken for success' in printed
    assert 'precision 1.000, recall 1.000' in printed


def test_what_cannot_be_learned_from_is_refused_in_one_line(demos, run, tmp_path, capsys):
    def folder(name, *kinds, **options):
        for number, kind in enumerate(kinds):
            record(tmp_path / name, number, kind, **options)
        (tmp_path / name).mkdir(exist_ok=True)
        return tmp_path / name

    (tmp_path / 'there.onnx').touch()
    cut = folder('cut', True, frames=150)
    whole = next((cut / 'episode_0000').glob('*.mcap'))
    whole.write_bytes(whole.read_bytes()[:-20_000])
    torn = tmp_path / 'torn'
    for name in ('success', 'failure'):
        (torn / name).mkdir(parents=True)
        (torn / name / 'a.png').write_bytes(b'\x89PNG')
    for data, output, reason in (
            (tmp_path / 'nowhere', 'a.onnx', 'nowhere is no folder'),
            (folder('empty'), 'a.onnx', 'no bag is there'),
            (folder('few', *[True] * 4, *[False] * 4), 'a.onnx',
             '4 of 8 episodes show success, which are too few: at least 5'),
            (folder('lost', *[False] * 5), 'a.onnx', '0 of 5 episodes show success'),
            (folder('short', *[True] * 5, frames=11), 'a.onnx', 'all pictures show success'),
            (folder('blind', *[True] * 5, frames=0), 'a.onnx', 'no image on camera/image_raw'),
            (cut, 'a.onnx', 'what follows in it is left out; move this episode out of the '),
            (torn, 'a.onnx', 'a.png: compressed image: '),
            (demos, 'a.onnx --image x', "image 'x' is not allowed: names of its images: camera, "
             'all'),
            (torn, 'a.onnx --robot=', f'--robot: missing: nothing in {torn} names the contract'),
            (demos, 'a.onnx --robot=', "robot: 'mine' is not allowed"),
            (demos, 'there.onnx', 'there.onnx exists; name another file'),
            (demos, 'a.pt', 'a.pt does not end in .onnx')):
        assert run(data, *output.split()) == 2, reason
        found = capsys.readouterr().err
        assert reason in found
        assert found.count('\n') == 1, reason
        assert not [*tmp_path.glob('a.*')]


def test_a_file_of_something_else_is_refused(trained, tmp_path):
    path, whole = tmp_path / 'other.onnx', onnx.load(trained[0])

    def describing(**changes):
        model = onnx.ModelProto.FromString(whole.SerializeToString())
        stated = json.loads(model.metadata_props[0].value) | changes
        onnx.helper.set_model_props(model, {KEY: json.dumps(stated)})
        return model

    not_finite = describing()
    for tensor in not_finite.graph.initializer:
        if tensor.name.endswith('bias') and tensor.dims == [1]:
            tensor.CopyFrom(onnx.numpy_helper.from_array(
                np.full(1, np.nan, np.float32), tensor.name))
    for model, reason in ((describing(kind='policy'), 'at `$.kind`'),
                          (describing(size=[64, 64]), 'those of its metadata'),
                          (describing(threshold=1.5), 'at `$.threshold`'),
                          (not_finite, 'is not a number')):
        path.write_bytes(model.SerializeToString())
        with pytest.raises(OnnxFileError, match=str(path)) as error:
            load_classifier(path)
        assert reason in str(error.value)


def test_a_contract_has_the_image_that_the_classifier_sees(trained, tmp_path):
    (tmp_path / 'a.onnx').write_bytes(trained[0].read_bytes())
    for size in ([40, 36], [64, 48]):
        (tmp_path / 'mine.yaml').write_text(yaml.safe_dump(GOOD | {
            'images': [CAMERA | {'size': size}],
            'success': {'classifier': 'a.onnx', 'image': 'camera'}}))
        contract = read_contract(tmp_path / 'mine.yaml')
        if size == [40, 36]:
            assert classifier_of(contract).metadata.size == (40, 36)
    with pytest.raises(ContractError) as error:
        classifier_of(contract)
    assert str(error.value) == ('mine.yaml: success: image: camera of size [64, 48] is not '
                                'allowed: [40, 36], as of a.onnx')

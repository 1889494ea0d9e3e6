"""Training of pose networks: its optimiser, resuming, refusals, scores and their command."""

import json
import math
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vdl_ros.common.tensor_file import load_tensor_file
from vdl_ros.pose import training
from vdl_ros.pose.dataset import PoseDataset
from vdl_ros.pose.estimator import Estimate, load_model, save_model
from vdl_ros.pose.evaluation import calibrate, calibrated, score
from vdl_ros.pose.networks import OUTPUTS, make_model
from vdl_ros.pose.training import PoseOptimizer, Trainer, TrainingConfig
from vdl_ros.tools import evaluate_pose, train_pose


@pytest.fixture(autouse=True)
def precision(monkeypatch):
    """Compute in float32, also where bfloat16 measures as faster; keep the number of threads."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(training, 'bfloat16_is_faster', lambda: False)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def data(data_sets, small_network, monkeypatch):
    """Return 21 frames, of which the first is held out; nothing is drawn."""
    monkeypatch.setattr(training, 'draw_curve', lambda *_: None)
    return PoseDataset([data_sets.write('some', 21)])


def stop_after(queries):
    """Return an event that is set after this many queries."""
    answers = iter([False] * queries)
    return SimpleNamespace(is_set=lambda: next(answers, True))


def train(data, folder, stop=None, resume=False, init=None, **settings):
    trainer = Trainer(data, TrainingConfig(**{'batch': 4, 'threads': 1} | settings), folder,
                      resume=resume, init=init, log=lambda line: None)
    trainer.train(stop or threading.Event())
    return trainer


def checkpoint(folder):
    return load_tensor_file(folder / 'checkpoint.pt', 'checkpoint')


def test_a_resumed_training_ends_with_the_same_weights(data, tmp_path):
    # Not by time: the learning rate follows the share that is done.
    train(data, tmp_path / 'whole', epochs=2)
    assert 5 < train(data, tmp_path / 'halves', epochs=2, stop=stop_after(9)).step < 10
    assert train(data, tmp_path / 'halves', epochs=2, resume=True).step == 10
    whole, halves = (checkpoint(tmp_path / name) for name in ('whole', 'halves'))
    for part in ('model', 'average'):
        for name, value in whole[part].items():
            assert torch.equal(value, halves[part][name]), name
    rows = (tmp_path / 'halves' / 'progress.csv').read_text().splitlines()[1:]
    assert [row.split(',')[0] for row in rows] == ['5', '10']


def test_held_out_frames_are_not_trained_on(data, tmp_path, monkeypatch):
    trained, held_out, pictures = set(), set(), data.pictures

    def remember(indices):
        (held_out if isinstance(indices, list) else trained).update(np.asarray(indices).tolist())
        return pictures(indices)

    monkeypatch.setattr(data, 'pictures', remember)
    train(data, tmp_path / 'run', epochs=1)
    assert (trained, held_out) == (set(range(1, 21)), {0})


def test_training_starts_from_a_model_and_refuses_what_does_not_fit(data, data_sets, tmp_path):
    first = tmp_path / 'first'
    train(data, first, epochs=1)
    model, _ = load_model(first)
    # A rate at which nothing is learned shows what it began with.
    train(data, tmp_path / 'second', epochs=1, init=first, lr=1e-12)
    found = checkpoint(tmp_path / 'second')
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found['model'][name], value, atol=1e-6, rtol=0)
    few = PoseDataset([data_sets.write('few', 3)])
    for frames, folder, settings, reason in (
            (data, 'third', {'init': first, 'model': 'alexnet'}, 'is resnet, not alexnet'),
            (data, 'first', {'init': first, 'resume': True},
             '--init: .* is not allowed with --resume'),
            (data, 'first', {}, 'is not empty'),
            (data, 'first', {'resume': True, 'model': 'alexnet'},
             'architecture is resnet, not alexnet'),
            (data, 'other', {'resume': True}, 'holds no checkpoint'),
            (few, 'few', {}, '3 frames are too few for batches of 4')):
        with pytest.raises(ValueError, match=reason):
            train(frames, tmp_path / folder, **settings)
    (first / 'checkpoint.pt').write_bytes(b'rubbish')
    with pytest.raises(ValueError, match='not a readable checkpoint'):
        train(data, first, resume=True)


@pytest.mark.usefixtures('small_network')
def test_the_command_trains_stops_on_a_signal_and_names_what_is_not_allowed(
        data_sets, tmp_path, monkeypatch, capsys):
    lines = []

    def log(line):
        lines.append(line)
        if 'epoch 1: joints' in line:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(train_pose, 'say', log)
    folder = tmp_path / 'run'
    command = ['--data', str(data_sets.write('some', 21)), '--output', str(folder), '--batch', '4',
               '--threads', '1']
    assert train_pose.main([*command, '--epochs', '100000']) == 0
    assert lines[-1] == f'stopped; continue with --resume --output {folder}'
    epochs = checkpoint(folder)['epoch']
    assert train_pose.main([*command, '--resume', '--epochs', str(epochs + 1)]) == 0
    assert any(f'epoch {epochs + 1}: joints' in line for line in lines)
    assert (folder / 'curve.png').read_bytes()[:4] == b'\x89PNG'
    assert list(folder.glob('events.out.*'))
    assert json.loads((folder / 'config.json').read_text())['frames'] == 21
    origin = load_model(folder)[1]['origin']
    assert (origin['seed'], origin['validation']['frames']) == (0, 1)
    assert train_pose.main(['--data', str(tmp_path / 'nowhere'), '--output', str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1
    assert 'no data set is there' in error
    for name, value in (('epochs', '0'), ('lr', '0'), ('lr', 'nan'), ('minutes', '-1'),
                        ('batch', '1')):
        with pytest.raises(SystemExit):
            train_pose.main([*command, f'--{name}', value])
        assert f'--{name}: {value!r} is not allowed: ' in capsys.readouterr().err


@pytest.mark.usefixtures('small_network')
@pytest.mark.parametrize('bfloat16', [False, True])
def test_updates_of_inner_kernels_are_orthogonal(bfloat16):
    torch.manual_seed(1)
    model = make_model('resnet')
    given = {name: torch.randn(each.shape) for name, each in model.named_parameters()}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with ThreadPoolExecutor(2) as pool:
        PoseOptimizer(model, 0.0, bfloat16=bfloat16).step(list(given.values()), 0.1, 1e9, pool)
    moved = {name: before[name] - value for name, value in model.state_dict().items()}
    for name in ('second.weight', 'hidden.weight'):
        sizes = torch.linalg.svdvals(moved[name].flatten(1))
        assert sizes.max() < 2.0 * sizes.min(), name
        assert (moved[name] * given[name]).sum() > 0.0
    # AdamW's first step is the learning rate for each number.
    for name in ('first.weight', 'first.bias', 'head.weight', 'second.bias'):
        torch.testing.assert_close(moved[name].abs(), torch.full_like(moved[name], 0.1),
                                   rtol=1e-2, atol=0)


ONE = np.array([0.8, 0.5, 3.1, 0.0, -1.0, 2.0], np.float32)


def estimates(count, std=0.1):
    """Return estimates whose errors have the standard deviations that they state, and truth."""
    random = np.random.default_rng(0)
    truth = np.repeat(ONE[None], count, 0)
    stds = np.broadcast_to(std, (count, 6)).astype(np.float32)
    values = truth + (random.normal(size=(count, 6)) * stds).astype(np.float32)
    return Estimate(values, stds, *np.ones((2, count), bool)), truth


def test_angle_errors_wrap_around():
    off = np.zeros((4, 6), np.float32)
    off[0] = np.radians([0, 9, 9, 9, 9, 9])
    off[1] = np.radians([0, 11, -11, 11, -11, 11])
    off[2] = np.radians([0, 0, 360, 351, 0, 0])
    off[3, 0] = 0.09
    truth = np.repeat(ONE[None], 4, 0)
    found = score(Estimate(truth + off, np.full((4, 6), 0.1, np.float32),
                           np.array([True, False, True, True]), np.ones(4, bool)), truth)
    assert found.accuracy == dict.fromkeys(OUTPUTS, 0.75)
    assert found.joint_accuracy == 0.75
    assert math.degrees(found.joint_error) == pytest.approx((3 * 9 + 3 * 11 + 9) / 12, abs=1e-3)
    assert found.error['camera_distance'] == pytest.approx(0.09 / 4, abs=1e-6)
    assert (found.confident, found.confident_accuracy) == (0.75, 1.0)
    printed = found.as_dict()
    assert printed['joint_accuracy_10deg'] == 0.75
    assert printed['mean_error']['base_deg'] == pytest.approx((9 + 11 + 9) / 4, abs=1e-3)


def test_standard_deviations_are_calibrated():
    estimate, truth = estimates(4000)
    wrong = estimate._replace(std=estimate.std * np.float32([1, 2, 0.5, 1, 1, 3]))
    calibration = calibrate(wrong, truth)
    np.testing.assert_allclose(calibration['scale'], [1, 0.5, 2, 1, 1, 1 / 3], rtol=0.06)
    for share in score(calibrated(wrong, calibration), truth).within_std.values():
        assert share == pytest.approx(0.683, abs=0.001)


def test_the_threshold_separates_accurate_estimates():
    # Stated uncertainties from 1 to 30 degrees, and errors to match.
    std = np.radians(np.linspace(1, 30, 3000))[:, None]
    estimate, truth = estimates(3000, std)
    calibration = calibrate(estimate, truth)
    found = score(calibrated(estimate, calibration), truth)
    assert found.joint_accuracy < 0.7
    assert found.confident_accuracy >= 0.98
    assert 0.1 < found.confident < 0.5
    # Nothing to distrust: nearly all are confident.
    estimate, truth = estimates(3000, std / 20)
    found = score(calibrated(estimate, calibrate(estimate, truth)), truth)
    assert found.confident == pytest.approx(0.99, abs=0.005)


@pytest.mark.usefixtures('small_network')
def test_the_command_prints_attacks_plots_and_reports_errors(data_sets, tmp_path, capsys):
    torch.manual_seed(0)
    model = tmp_path / 'model.pt'
    save_model(model, 'resnet', make_model('resnet').state_dict(),
               {'scale': [1.0] * 6, 'threshold': 0.1}, {})
    picture = tmp_path / 'picture.png'
    data = ['--threads', '1', '--model', str(model), '--data', str(data_sets.write('one', 4)),
            str(data_sets.write('two', 3))]
    assert evaluate_pose.main([
        *data, '--json', '--picture', str(picture), '--adversarial_mode', 'fgsm',
        '--adversarial_epsilon', '0.003', '0.02']) == 0
    output, notes = capsys.readouterr()
    printed = json.loads(output)
    assert printed['architecture'] == 'resnet'
    assert {name: each['frames'] for name, each in printed['data'].items()} == {
        f'{name}{attack}': count for name, count in (('one', 4), ('two', 3))
        for attack in ('', ', fgsm 0.003', ', fgsm 0.02')}
    clean, small, large = (printed['data'][name]['mean_error'] for name in (
        'one', 'one, fgsm 0.003', 'one, fgsm 0.02'))
    # Less than the distance of two bytes: nothing changes, which is said.
    assert clean == small != large
    assert '1/255 = 0.0039' in notes
    assert picture.read_bytes()[:4] == b'\x89PNG'
    assert evaluate_pose.main([*data, '--table']) == 0
    rows = [line.split('|')[1:-1] for line in capsys.readouterr().out.splitlines()]
    assert [len(row) for row in rows] == [10] * 4
    assert [rows[0][2].strip(), *(row[0].strip() for row in rows[2:])] == ['joints', 'one', 'two']

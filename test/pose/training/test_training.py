"""Training of pose networks: learning, resuming, and errors of settings and folders."""

import json
import signal
import threading

import pytest
import torch

from vdl_ros.common.tensor_file import load_tensor_file
from vdl_ros.pose.data.dataset import PoseDataset
from vdl_ros.pose.model_file import load_model
from vdl_ros.pose.training import training
from vdl_ros.pose.training.training import Trainer
from vdl_ros.pose.training.training_config import TrainingConfig
from vdl_ros.tools import train_pose


pytestmark = pytest.mark.usefixtures('small_network')


@pytest.fixture(autouse=True)
def precision(monkeypatch):
    """Compute in float32, also where bfloat16 measures as faster."""
    monkeypatch.setattr(training, 'bfloat16_is_faster', lambda: False)


@pytest.fixture
def data(bags):
    """Return 21 frames, of which the first is held out."""
    return PoseDataset([bags.write('some', 21)])


class StopAfter(threading.Event):
    """An event that is set after this many queries."""

    def __init__(self, queries):
        super().__init__()
        self._left = queries

    def is_set(self):
        self._left -= 1
        return self._left < 0


def train(data, folder, stop=None, resume=False, init=None, **settings):
    lines = []
    trainer = Trainer(data, TrainingConfig(**{'batch': 4, 'threads': 1} | settings), folder,
                      resume=resume, init=init, log=lines.append)
    return trainer, trainer.train(stop or threading.Event()), lines


def checkpoint(folder):
    return load_tensor_file(folder / 'checkpoint.pt', 'checkpoint')


def test_training_lowers_the_loss_and_writes_its_files(data, tmp_path):
    folder = tmp_path / 'run'
    trainer, scores, lines = train(data, folder, epochs=8)
    assert (trainer.epoch, trainer.step) == (8, 40)
    rows = (folder / 'progress.csv').read_text().splitlines()
    losses = [float(row.split(',')[6]) for row in rows[1:]]
    assert len(losses) == 8
    assert losses[-1] < 0.97 * losses[0]
    assert (folder / 'curve.png').read_bytes()[:4] == b'\x89PNG'
    assert list(folder.glob('events.out.*'))
    config = json.loads((folder / 'config.json').read_text())
    assert config['frames'] == 21
    _, found = load_model(folder)
    assert found['origin']['seed'] == 0
    assert found['origin']['validation']['frames'] == scores.frames == 1
    assert any('epoch 8: joints' in line for line in lines)


def test_a_resumed_training_ends_with_the_same_weights(data, tmp_path):
    # Not by time: the learning rate follows the share that is done.
    train(data, tmp_path / 'whole', epochs=2)
    trainer, _, _ = train(data, tmp_path / 'halves', epochs=2, stop=StopAfter(9))
    before = trainer.step
    assert 5 < before < 10
    trainer, _, _ = train(data, tmp_path / 'halves', epochs=2, resume=True)
    assert trainer.step == 10
    whole, halves = (checkpoint(tmp_path / name) for name in ('whole', 'halves'))
    for part in ('model', 'average'):
        for name, value in whole[part].items():
            assert torch.equal(value, halves[part][name]), name
    rows = (tmp_path / 'halves' / 'progress.csv').read_text().splitlines()[1:]
    assert [row.split(',')[0] for row in rows] == ['5', '10']


def test_gradients_of_a_split_batch_equal_those_of_the_whole(data, tmp_path, monkeypatch):
    monkeypatch.setattr(training, 'augment', lambda pictures, generator: pictures)
    monkeypatch.setattr(training, 'flip', lambda *batch: batch[:3])
    found = []
    for threads in (1, 2):
        train(data, tmp_path / str(threads), epochs=1, threads=threads)
        found.append(checkpoint(tmp_path / str(threads))['model'])
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], atol=2e-3, rtol=0)


def test_held_out_frames_are_not_trained_on(data, tmp_path, monkeypatch):
    seen = set()
    pictures = PoseDataset.pictures
    trainer = Trainer(data, TrainingConfig(batch=4, epochs=1, threads=1), tmp_path / 'run')
    monkeypatch.setattr(PoseDataset, 'pictures',
                        lambda self, indices: (seen.update(indices), pictures(self, indices))[1])
    monkeypatch.setattr(trainer, '_validate', lambda losses: None)
    trainer.train(threading.Event())
    assert seen == set(range(1, 21))


def test_training_can_start_from_a_model_but_not_with_invalid_settings(data, bags, tmp_path):
    first = tmp_path / 'first'
    train(data, first, epochs=1)
    model, _ = load_model(first)
    # A rate at which nothing is learned shows what it began with.
    train(data, tmp_path / 'second', epochs=1, init=first, lr=1e-12)
    found = checkpoint(tmp_path / 'second')
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found['model'][name], value, atol=1e-6, rtol=0)
    few = PoseDataset([bags.write('few', 3)])
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
    for name, value in (('epochs', 0), ('lr', 0.0), ('lr', float('nan')), ('minutes', -1.0),
                        ('batch', 1), ('workers', -2)):
        with pytest.raises(ValueError, match=f'--{name}'):
            TrainingConfig(**{name: value})


@pytest.mark.usefixtures('own_signals')
def test_the_command_trains_stops_on_a_signal_and_refuses_a_missing_bag(
        bags, tmp_path, monkeypatch, capsys):
    lines = []

    def log(line):
        lines.append(line)
        if 'epoch 1: joints' in line:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(train_pose, '_log', log)
    folder = str(tmp_path / 'run')
    command = ['--data', str(bags.write('some', 21)), '--output', folder, '--batch', '4',
               '--threads', '1']
    assert train_pose.main([*command, '--epochs', '100000']) == 0
    assert lines[-1] == f'stopped; continue with --resume --output {folder}'
    epochs = checkpoint(tmp_path / 'run')['epoch']
    assert train_pose.main([*command, '--resume', '--epochs', str(epochs + 1)]) == 0
    assert any(f'epoch {epochs + 1}: joints' in line for line in lines)
    assert train_pose.main(['--data', str(tmp_path / 'nowhere'), '--output', folder]) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1
    assert 'no bag is there' in error

"""Training of pose networks: learning, resuming, and errors of settings and folders."""

import json
import threading

import pytest
import torch

from vdl_ros.common.tensor_file import load_tensor_file
from vdl_ros.pose.data.dataset import PoseDataset
from vdl_ros.pose.model_file import load_model
from vdl_ros.pose.training import training
from vdl_ros.pose.training.run_folder import RunError
from vdl_ros.pose.training.training import Trainer
from vdl_ros.pose.training.training_config import TrainingConfig
from vdl_ros.tools import train_pose


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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
    trainer, scores, lines = train(data, folder, epochs=4)
    assert (trainer.epoch, trainer.step) == (4, 20)
    rows = (folder / 'progress.csv').read_text().splitlines()
    losses = [float(row.split(',')[6]) for row in rows[1:]]
    assert len(losses) == 4
    assert losses[-1] < 0.97 * losses[0]
    assert (folder / 'curve.png').read_bytes()[:4] == b'\x89PNG'
    assert list(folder.glob('events.out.*'))
    config = json.loads((folder / 'config.json').read_text())
    assert config['frames'] == 21
    _, found = load_model(folder)
    assert found['origin']['seed'] == 0
    assert found['origin']['validation']['frames'] == scores.frames == 1
    assert any('epoch 4: joints' in line for line in lines)


def test_a_resumed_training_ends_with_the_same_weights(data, tmp_path):
    # Not by time: the learning rate follows the share that is done.
    train(data, tmp_path / 'whole', epochs=2)
    trainer, _, _ = train(data, tmp_path / 'halves', epochs=2, stop=StopAfter(9))
    assert 0 < trainer.step < 10
    assert trainer.step % 5
    before = trainer.step
    trainer, _, _ = train(data, tmp_path / 'halves', epochs=2, resume=True)
    assert trainer.step == 10 > before
    whole, halves = (checkpoint(tmp_path / name) for name in ('whole', 'halves'))
    for part in ('model', 'average'):
        for name, value in whole[part].items():
            assert torch.equal(value, halves[part][name]), name
    steps = [row.split(',')[0] for row in
             (tmp_path / 'halves' / 'progress.csv').read_text().splitlines()[1:]]
    assert steps == ['5', '10']


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


def test_training_can_start_from_the_weights_of_a_model(data, tmp_path):
    train(data, tmp_path / 'first', epochs=1)
    model, _ = load_model(tmp_path / 'first')
    # A rate at which nothing is learned shows what it began with.
    train(data, tmp_path / 'second', epochs=1, init=tmp_path / 'first', lr=1e-12)
    found = checkpoint(tmp_path / 'second')
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found['model'][name], value, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match='is resnet, not alexnet'):
        train(data, tmp_path / 'third', init=tmp_path / 'first', model='alexnet')
    with pytest.raises(ValueError, match='--init: .* is not allowed with --resume'):
        train(data, tmp_path / 'first', init=tmp_path / 'first', resume=True)


def test_invalid_settings_and_folders_are_errors(data, bags, tmp_path):
    folder = tmp_path / 'run'
    train(data, folder, epochs=1)
    with pytest.raises(RunError, match='is not empty'):
        train(data, folder)
    with pytest.raises(RunError, match='architecture is resnet, not alexnet'):
        train(data, folder, resume=True, model='alexnet')
    with pytest.raises(RunError, match='holds no checkpoint'):
        train(data, tmp_path / 'other', resume=True)
    (folder / 'checkpoint.pt').write_bytes(b'rubbish')
    with pytest.raises(ValueError, match='not a readable checkpoint'):
        train(data, folder, resume=True)
    few = PoseDataset([bags.write('few', 3)])
    with pytest.raises(ValueError, match='3 frames are too few for batches of 4'):
        train(few, tmp_path / 'few')
    for name, value in (('epochs', 0), ('lr', 0.0), ('lr', float('nan')), ('minutes', -1.0),
                        ('batch', 1), ('workers', -2)):
        with pytest.raises(ValueError, match=f'--{name}'):
            TrainingConfig(**{name: value})


def test_the_command_trains_and_stops_on_a_signal(bags, launch, tmp_path):
    path, folder = bags.write('some', 21), tmp_path / 'run'
    command = ['ros2', 'run', 'vdl_ros', 'train_pose', '--data', str(path), '--output',
               str(folder), '--batch', '4', '--threads', '1']
    started = launch(*command, '--epochs', '100000')
    started.wait_for(lambda: 'epoch 1: joints' in started.output, 'the first epoch')
    started.interrupt()
    assert started.wait() == 0
    assert 'continue with --resume' in started.output
    epochs = checkpoint(folder)['epoch']
    again = launch(*command, '--resume', '--epochs', str(epochs + 1))
    assert again.wait() == 0
    assert f'epoch {epochs + 1}: joints' in again.output


@pytest.mark.usefixtures('own_signals')
def test_a_missing_bag_is_an_error_of_one_line(tmp_path, capsys):
    status = train_pose.main(
        ['--data', str(tmp_path / 'nowhere'), '--output', str(tmp_path / 'new')])
    assert status == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1
    assert 'no bag is there' in error

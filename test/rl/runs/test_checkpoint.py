"""Checkpoints: written whole or not at all, and no code in them is run."""

import os
import pickle
import random
import resource
import zipfile

import pytest
import torch

from vdl_ros.rl.runs.checkpoint import FORMAT, CheckpointError, load_checkpoint, save_checkpoint

PARTS = {'config': {'env_id': 'x', 'seed': 1}, 'learner': {'w': torch.arange(200.0)},
         'progress': {'returns': [1.0, 2.0], 'wall_s': 0.5}}


@pytest.fixture
def path(tmp_path):
    save_checkpoint(tmp_path / 'checkpoint.pt', **PARTS)
    return tmp_path / 'checkpoint.pt'


def refused(path, reason):
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path)
    message = str(error.value)
    assert message.startswith(f'{path}: ')
    assert '\n' not in message
    assert reason in message


def test_what_was_saved_is_loaded(path, same):
    found = load_checkpoint(path)
    assert same({name: found[name] for name in PARTS}, PARTS)
    assert os.listdir(path.parent) == ['checkpoint.pt']


@pytest.mark.parametrize('size', [0, 1, 64, 1000, 100_000, 1_000_000])
def test_a_write_that_fails_raises_oserror_and_leaves_the_old_one(path, size):
    """The kernel refuses to write beyond ``size`` bytes, as on a full disk."""
    old = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(OSError, match='File too large'):
            save_checkpoint(path, **{**PARTS, 'learner': {
                name: torch.rand(200_000) for name in 'vw'}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == ['checkpoint.pt']


def test_content_and_name_are_on_the_disk_before_and_after_the_rename(path, monkeypatch):
    synced, sync = [], os.fsync

    def record(descriptor):
        synced.append(os.readlink(f'/proc/self/fd/{descriptor}'))
        sync(descriptor)

    monkeypatch.setattr(os, 'fsync', record)
    save_checkpoint(path, **PARTS)
    assert synced == [f'{path}.partial', str(path.parent)]


def test_a_new_one_replaces_the_old(path):
    save_checkpoint(path, **{**PARTS, 'config': {'env_id': 'y'}})
    assert load_checkpoint(path)['config'] == {'env_id': 'y'}


def test_a_missing_file_is_reported(tmp_path):
    refused(tmp_path / 'none.pt', 'no such file')
    refused(tmp_path, 'no such file')


@pytest.mark.parametrize('content', [
    b'', b'garbage', b'\x80\x02garbage.', b'PK\x03\x04', b'\x00' * 4096, b'env_id: x\n',
    pickle.dumps({'format': FORMAT})], ids=repr)
def test_a_file_that_is_not_a_checkpoint_is_rejected(path, content):
    path.write_bytes(content)
    refused(path, 'not a readable checkpoint')


def test_a_truncated_file_is_rejected(path):
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        refused(path, '')


def test_a_file_with_a_changed_byte_is_rejected_or_gives_the_same_content(path, same):
    # Some bytes of a zip file carry nothing: dates, padding.
    draw, whole, caught = random.Random(0), path.read_bytes(), 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            found = load_checkpoint(path)
        except CheckpointError:
            caught += 1
        else:
            assert same({name: found[name] for name in PARTS}, PARTS)
    assert caught > 100


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.system, (f'mkdir {self.folder}',)


@pytest.mark.process
@pytest.mark.parametrize('bare', [False, True])
def test_code_in_a_checkpoint_is_not_run(path, tmp_path, bare):
    trap = tmp_path / 'trapped'
    content = {'format': FORMAT, **PARTS, 'progress': {'returns': Trap(trap)}}
    if bare:
        path.write_bytes(pickle.dumps(Trap(trap)))
    else:
        torch.save(content, path)
    refused(path, 'not a readable' if bare else 'refused')
    assert not trap.exists()
    torch.load(path, weights_only=False) if not bare else pickle.loads(path.read_bytes())
    assert trap.exists()  # the trap was a real one


@pytest.mark.parametrize('key', ['format', 'config', 'learner', 'progress'])
def test_a_missing_part_is_rejected(path, key):
    torch.save({name: value for name, value in {'format': FORMAT, **PARTS}.items() if name != key},
               path)
    refused(path, 'not a checkpoint of this program')


@pytest.mark.parametrize('value', [None, 'x', [1, 2], torch.ones(2)], ids=repr)
@pytest.mark.parametrize('key', list(PARTS))
def test_a_part_that_is_not_a_dict_is_rejected(path, key, value):
    torch.save({'format': FORMAT, **PARTS, key: value}, path)
    refused(path, 'not a checkpoint of this program')


@pytest.mark.parametrize('content', [[1, 2], 3, torch.ones(2)], ids=repr)
def test_other_contents_are_rejected(path, content):
    torch.save(content, path)
    refused(path, 'not a checkpoint of this program')


def test_another_format_is_named(path):
    torch.save({**PARTS, 'format': 999}, path)
    refused(path, f'format 999 is not {FORMAT}')


def test_another_zip_file_is_rejected(path):
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('readme.txt', 'hello')
    refused(path, 'not a readable checkpoint')


def test_of_the_folder_of_a_run_the_best_policy_is_read_or_the_newest(tmp_path):
    for name, version in (('checkpoint.pt', 5), ('best.pt', 3)):
        save_checkpoint(tmp_path / name, config={}, learner={'version': version}, progress={})
        assert load_checkpoint(tmp_path)['learner']['version'] == version
    (tmp_path / 'nothing').mkdir()
    with pytest.raises(CheckpointError, match=r'nothing: a folder without best\.pt or checkpoint'):
        load_checkpoint(tmp_path / 'nothing')

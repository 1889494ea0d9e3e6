"""Checkpoints: written whole or not at all, and no code in them is run."""

import os
import pickle
import zipfile

import pytest
import torch
from refusals import refusal

from vdl_ros.rl.runs.checkpoint import FORMAT, CheckpointError, load_checkpoint, save_checkpoint

PARTS = {'config': {'env_id': 'x', 'scale_actions': True}, 'learner': {'w': torch.arange(200.0)},
         'progress': {'returns': [1.0, 2.0], 'wall_s': 0.5}}


@pytest.fixture
def path(tmp_path):
    save_checkpoint(tmp_path / 'checkpoint.pt', **PARTS)
    return tmp_path / 'checkpoint.pt'


def refused(path, reason, case=''):
    message = refusal(CheckpointError, load_checkpoint, path)
    assert message.startswith(f'{path}: '), case
    assert reason in message, case


def test_what_was_saved_is_loaded(path, same):
    found = load_checkpoint(path)
    assert same({name: found[name] for name in PARTS}, PARTS)
    assert os.listdir(path.parent) == ['checkpoint.pt']


def test_content_and_name_are_on_the_disk_before_and_after_the_rename(path, monkeypatch):
    synced, sync = [], os.fsync

    def record(descriptor):
        synced.append(os.readlink(f'/proc/self/fd/{descriptor}'))
        sync(descriptor)

    monkeypatch.setattr(os, 'fsync', record)
    save_checkpoint(path, **{**PARTS, 'config': {'env_id': 'y'}})
    assert load_checkpoint(path)['config']['env_id'] == 'y'
    assert synced == [f'{path}.partial', str(path.parent)]


def test_a_damaged_file_or_another_one_is_rejected(path):
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(PARTS['learner']['w'].numpy().tobytes()) + 20] ^= 1
    for content in (b'garbage', b'\x80\x02garbage.', b'PK\x03\x04', b'\x00' * 4096,
                    pickle.dumps({'format': FORMAT}), flipped,
                    *(whole[:size] for size in range(0, len(whole), 197))):
        path.write_bytes(content)
        refused(path, 'not a readable checkpoint', content[:40])
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('readme.txt', 'hello')
    refused(path, 'not a readable checkpoint', 'another zip file')


def test_a_small_file_does_not_fill_the_memory(path):
    save_checkpoint(path, **{**PARTS, 'learner': {'w': torch.zeros(10_000)}})
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}

    def write(compression, pickled=b''):
        with zipfile.ZipFile(path, 'w', compression) as archive:
            for name, content in files.items():
                archive.writestr(
                    name, pickled if pickled and name.endswith('data.pkl') else content)

    write(zipfile.ZIP_STORED)
    load_checkpoint(path)
    write(zipfile.ZIP_DEFLATED)
    refused(path, 'it is compressed: ')
    # What bytearray(5) calls.
    write(zipfile.ZIP_STORED, b'\x80\x02cbuiltins\nbytearray\nK\x05\x85R.')
    refused(path, 'contains more than tensors and plain values')
    torch.save({'format': FORMAT, **PARTS, 'learner': {'w': [torch.ones(1).expand(9)]}}, path)
    refused(path, 'a tensor has more numbers than the file')


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def test_code_in_a_checkpoint_is_not_run(path, tmp_path):
    for bare in (False, True):
        trap = tmp_path / f'trapped {bare}'
        if bare:
            path.write_bytes(pickle.dumps(Trap(trap)))
        else:
            torch.save({'format': FORMAT, **PARTS, 'progress': {'returns': Trap(trap)}}, path)
        refused(path, 'not a readable' if bare else 'refused')
        assert not trap.exists()
        pickle.loads(path.read_bytes()) if bare else torch.load(path, weights_only=False)
        assert trap.exists(), 'the trap was a real one'


def test_what_is_not_a_checkpoint_of_this_program_is_rejected(path):
    whole = {'format': FORMAT, **PARTS}
    for content in (
            *({name: value for name, value in whole.items() if name != key} for key in whole),
            *({**whole, key: value} for key, value in zip(
                PARTS, (None, [1, 2], torch.ones(2)), strict=True)),
            [1, 2], torch.ones(2)):
        torch.save(content, path)
        refused(path, 'not a checkpoint of this program', content)
    torch.save({**PARTS, 'format': 999}, path)
    refused(path, f'format 999 is not {FORMAT}')
    # 10**9 texts in 1 kB, whose repr would fill the memory.
    shared = ['x'] * 10
    for _ in range(8):
        shared = [shared] * 10
    torch.save({**PARTS, 'format': shared}, path)
    refused(path, 'more than 4194304 values')


def test_of_the_folder_of_a_run_the_best_policy_is_read_or_the_newest(tmp_path):
    for name, version in (('checkpoint.pt', 5), ('best.pt', 3)):
        save_checkpoint(tmp_path / name, config={}, learner={'version': version}, progress={})
        assert load_checkpoint(tmp_path)['learner']['version'] == version
    (tmp_path / 'nothing').mkdir()
    with pytest.raises(CheckpointError, match=r'nothing: a folder without best\.pt or checkpoint'):
        load_checkpoint(tmp_path / 'nothing')

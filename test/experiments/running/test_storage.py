"""Storages: one experiment a folder, what a killed process leaves, and one line for what fails."""

import sqlite3

import optuna
import pytest
from optuna.pruners import NopPruner
from optuna.samplers import RandomSampler

from vdl_ros.experiments.running.storage import (
    StorageError,
    folder_lock,
    open_storage,
    open_study,
    storage_errors,
)


def study_of(storage, content=None):
    return open_study(storage, 'file/spec', RandomSampler(), NopPruner(), content or {'a': 1})


def test_a_folder_belongs_to_one_experiment_at_a_time(tmp_path):
    with folder_lock(tmp_path / 'a'), \
            pytest.raises(StorageError, match='is locked by another experiment'), \
            folder_lock(tmp_path / 'a'):
        pass
    with folder_lock(tmp_path / 'a'):
        pass


def test_a_line_that_was_cut_short_and_a_lock_that_was_left_do_not_matter(tmp_path):
    study_of(open_storage(tmp_path)).ask()
    journal = tmp_path / 'search.journal'
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines()[-1][:20])
    (tmp_path / 'search.journal.lock').symlink_to(journal)
    study = study_of(open_storage(tmp_path))
    assert study.ask().number == 1


def test_a_file_of_something_else_and_a_changed_spec_are_one_line(tmp_path):
    study_of(open_storage(tmp_path))
    with pytest.raises(StorageError, match='the spec has changed'):
        study_of(open_storage(tmp_path), {'a': 2})
    (tmp_path / 'search.journal').write_text('[1, 2]\n')
    with pytest.raises(StorageError, match='is not the file of a search'):
        open_storage(tmp_path)


@pytest.mark.parametrize(('url', 'message'), [
    ('redis://localhost', '--storage: .* cannot be used'),
    ('postgresql+none://me:secret@host/db', r'--storage: postgresql\+none://me:\*\*\*@host'),
    ('odd', '--storage: .* cannot be used'),
    ('sqlite:////does/not/exist/a.db', '--storage: sqlite:.* unable to open')])
def test_a_storage_that_cannot_be_opened_is_one_line(tmp_path, url, message):
    with pytest.raises(StorageError, match=message) as raised:
        open_storage(tmp_path, url)
    assert '\n' not in str(raised.value)


def test_a_locked_database_is_one_line_without_its_password(tmp_path):
    url = f'sqlite:///{tmp_path / "search.db"}'
    storage = optuna.storages.RDBStorage(url, engine_kwargs={'connect_args': {'timeout': 0.1}})
    other = sqlite3.connect(tmp_path / 'search.db', isolation_level=None)
    other.execute('BEGIN EXCLUSIVE')
    with pytest.raises(StorageError, match='database is locked') as raised, \
            storage_errors('postgresql://me:secret@host/db', tmp_path):
        study_of(storage)
    other.close()
    assert 'secret' not in str(raised.value)
    assert '\n' not in str(raised.value)

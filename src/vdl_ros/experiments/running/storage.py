"""The storage of a search: a file in its folder, or a database that several hosts share."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import optuna
from optuna.exceptions import OptunaError
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

__all__ = ['StorageError', 'folder_lock', 'open_storage', 'open_study', 'owner_of',
           'storage_errors']

_JOURNAL = 'search.journal'


class StorageError(ValueError):
    """A storage that cannot be used; the message is one line."""


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """
    Keep other experiments out of a folder, until the block or the process ends.

    Raises:
        StorageError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / '.lock').open('a') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f'{folder} is locked by another experiment; stop that one, or '
                               'choose another --output') from None
        yield


def owner_of(folder: Path) -> str:
    """Return what says whose trials those of a folder are, also in a shared database."""
    path = folder / '.owner'
    with contextlib.suppress(OSError):
        if found := path.read_text().strip():
            return found
    path.write_text(secrets.token_hex(8))
    return path.read_text()


@contextlib.contextmanager
def storage_errors(url: str, folder: Path) -> Iterator[None]:
    """Turn errors of a storage into a :class:`StorageError`, without the database's password."""
    try:
        yield
    except (SQLAlchemyError, OptunaError) as error:
        cause = error.__cause__ or error
        reason = str(getattr(cause, 'orig', None) or cause).strip()
        raise StorageError(f'--storage: {_shown(url) or folder / _JOURNAL} cannot be used: '
                           f'{" ".join(reason.split())[:200]}') from None


def open_storage(folder: Path, url: str = '') -> BaseStorage:
    """
    Return the storage of a search.

    Args:
        folder: of the experiment, locked; the file is there.
        url: of a database; empty: a file.

    Raises:
        StorageError: it cannot be opened.
    """
    optuna.logging.set_verbosity(logging.ERROR)
    path = folder / _JOURNAL
    with storage_errors(url, folder):
        if url:
            try:
                # Hosts that share a file wait for each other's transactions, s.
                connection = {'connect_args': {'timeout': 60}} if url.startswith('sqlite') else {}
                return RDBStorage(url, engine_kwargs=connection)
            except (ImportError, ValueError) as error:
                raise StorageError(f'--storage: {_shown(url)} is not allowed: '
                                   f'{" ".join(str(error).split())[:200]}') from None
        _repair(path)
        # The folder is locked, so what another process left is of one that is dead.
        (folder / f'{_JOURNAL}.lock').unlink(missing_ok=True)
        try:
            return JournalStorage(JournalFileBackend(str(path)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f'{path} is not the file of a search: '
                               f'{type(error).__name__}') from None


def open_study(
    storage: BaseStorage, name: str, sampler: BaseSampler, pruner: BasePruner,
    content: object,
) -> optuna.Study:
    """
    Return the study of a search, which is the one that is there, if it is of the same spec.

    Raises:
        StorageError: there is one of another spec.
    """
    study = optuna.create_study(
        storage=storage, study_name=name, direction='maximize', sampler=sampler, pruner=pruner,
        load_if_exists=True)
    text = json.dumps(content, sort_keys=True, default=str)
    known = study.user_attrs.get('spec')
    if known is None:
        study.set_user_attr('spec', text)
    elif known != text:
        raise StorageError(f'{name}: the spec has changed since this search began; undo the '
                           'change, or choose another --output or --storage')
    return study


def _repair(path: Path) -> None:
    """Cut off a last line that was not written whole."""
    with contextlib.suppress(FileNotFoundError):
        data = path.read_bytes()
        if data and not data.endswith(b'\n'):
            with path.open('r+b') as file:
                file.truncate(data.rfind(b'\n') + 1)


def _shown(url: str) -> str:
    """Return a database's address without its password."""
    if not url:
        return ''
    try:
        return make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return repr(url[:20])

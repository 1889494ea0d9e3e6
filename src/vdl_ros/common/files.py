"""Files of the package and of runs: where they are, whole writes, locks."""

import csv
import errno
import fcntl
import io
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def find_resource(name: str) -> Path:
    """Return the path of a file or folder: of the installation, or else of the checkout.

    Names are relative to the package's root. FileNotFoundError: neither has it.
    """
    here = Path(__file__)
    # The installation that this module belongs to, not another one on AMENT_PREFIX_PATH.
    roots = [parent / 'share' / 'vdl_ros' for parent in here.parents]
    roots.append(here.resolve().parents[3])
    for root in roots:
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f'{name} is neither installed nor in a checkout')


#: The whole state of a training, and the policy with the best evaluation.
CHECKPOINT, BEST = 'checkpoint.pt', 'best.pt'
#: The first episode step by step, and a row for each episode.
EPISODE, EPISODES = 'episode.csv', 'episodes.csv'


def checkpoint_file(path: Path) -> Path:
    """Return the file of a policy: of a run's folder best.pt, without one checkpoint.pt.

    ``reach`` and ``models/reach.pt``, where there is no such file, are those of this package.
    """
    if path.is_dir():
        return path / (BEST if (path / BEST).is_file() else CHECKPOINT)
    if not path.exists() and path in (Path(path.stem), Path('models', f'{path.stem}.pt')):
        with suppress(FileNotFoundError):
            return find_resource(f'models/{path.stem}.pt')
    return path


def from_here(path: str | Path) -> Path:
    """Return a path that stays when foreign code, as of an environment, changes the folder.

    Names of policies of this package stay names.
    """
    path = Path(path)
    is_name = not path.exists() and checkpoint_file(path) != path
    return path if is_name else path.absolute()


# Settings that name what is read, and what is written.
_READ = ('resume', 'init', 'demonstrations', 'robots', 'checkpoint', 'adversarial_checkpoint')
_WRITTEN = ('run_dir', 'video', 'output')


def absolute_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of which those that name files are absolute, see :func:`from_here`."""
    return {name: value if not value or not isinstance(value, str) else
            str(from_here(value)) if name in _READ else
            os.path.abspath(value) if name in _WRITTEN else value
            for name, value in values.items()}


def unique_name() -> str:
    """Return the local time with a random suffix: two calls in one second differ."""
    return f'{time.strftime("%Y%m%d-%H%M%S")}-{secrets.token_hex(3)}'


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` to write to; it becomes ``path`` if nothing is raised.

    After a crash of the machine the old or the new content is there. An OSError names ``path``.
    """
    partial = path.with_name(path.name + '.partial')
    try:
        partial.unlink(missing_ok=True)  # a link would be written through
        yield partial
        _sync(partial, os.O_RDONLY)
        partial.replace(path)
        # Otherwise the new name may be lost, and with it both contents.
        _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        # One of writing, as on a full disk, names no file.
        if error.errno and error.filename in (None, str(partial)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot do that with folders.
        if error.errno != errno.EINVAL or not flags & os.O_DIRECTORY:
            raise
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with atomic_file(path) as partial:
        partial.write_text(text)


def refuse_links(folder: Path) -> None:
    """Raise a ValueError if a folder, which is to be written to, has a link that leads out of it.

    The folder may be somebody else's: what is written by the name of a link is written elsewhere.
    """
    inside = folder.resolve()
    for each in folder.rglob('*'):
        if each.is_symlink() and not each.resolve().is_relative_to(inside):
            raise ValueError(f'{folder} cannot be written: {each.relative_to(folder)} is a link '
                             'that leads out of it')


# Bytes; what is cut is no JSON.
_MAX_JSON = 1 << 24


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file; {} without one that can be read."""
    try:
        with path.open('rb') as file:
            return dict(json.loads(file.read(_MAX_JSON)))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def json_lines(value: Any, start: str = '\n') -> str:
    """Return JSON with one line for each innermost list or mapping.

    Args:
        start: line break and indentation of the value.
    """
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts = [(f'{json.dumps(str(name))}: ', part) for name, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [('', part) for part in value]
    if not any(isinstance(part, dict | list | tuple) for _, part in parts):
        return json.dumps(value)
    lines = ','.join(f'{start} {name}{json_lines(part, f"{start} ")}' for name, part in parts)
    opening, closing = '{}' if isinstance(value, dict) else '[]'
    return f'{opening}{lines}{start}{closing}'


def append_whole(path: Path, data: bytes) -> None:
    """Append to a file, whole or, with an OSError, not at all."""
    # Without a buffer, whose rest would be written when the file is closed.
    with path.open('ab', buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            if stream.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            stream.truncate(size)
            if not size:
                path.unlink()
            raise OSError(error.errno, error.strerror, str(path)) from None


def write_table(path: Path, *rows: Iterable[object]) -> None:
    """Write a CSV file whole or not at all."""
    with atomic_file(path) as partial, partial.open('w', newline='') as file:
        csv.writer(file).writerows(rows)


class ProgressTable:
    """A CSV file of numbers; the first column is the step and increases."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path, self._columns = path, columns

    def rows(self) -> list[dict[str, float]]:
        """Return the rows so far, without a row that a crash cut short."""
        return [row for row, _ in self._lines()]

    def truncate(self, last_step: float) -> None:
        """Rewrite the file with its header and the rows up to ``last_step``."""
        kept = [line for row, line in self._lines() if row[self._columns[0]] <= last_step]
        with atomic_file(self._path) as partial, partial.open('w', newline='') as stream:
            writer = csv.DictWriter(stream, self._columns, extrasaction='ignore')
            writer.writeheader()
            writer.writerows(kept)

    def append(self, row: Mapping[str, object]) -> None:
        """Add a row, which must have all columns, whole or, with an OSError, not at all."""
        line = io.StringIO()
        csv.writer(line).writerow([row[name] for name in self._columns])
        append_whole(self._path, line.getvalue().encode())

    def _lines(self) -> list[tuple[dict[str, float], dict[str, str]]]:
        try:
            with self._path.open(newline='', errors='replace') as stream:
                lines = list(csv.DictReader(stream))
        except FileNotFoundError:
            return []
        rows = []
        for line in lines:
            try:
                rows.append(({name: float(line[name]) for name in self._columns}, line))
            except (KeyError, TypeError, ValueError):
                continue
        return rows


#: The file of a folder that is locked while a process writes the folder; that of a run.
LOCK_FILE, LAUNCH_FILE = '.lock', '.launch_id'
# Errors of flock on file systems without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class InUseError(ValueError):
    """A folder that another process writes; the message is one line with the folder."""


def lock_folder(folder: Path, name: str = LOCK_FILE) -> IO[str]:
    """Make a folder and lock it, until the returned file is closed or the process ends.

    InUseError: another process has locked it. ValueError: see :func:`refuse_links`.
    """
    refuse_links(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / name).open('a+')
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InUseError(f'{folder} is in use by another process; stop that one, or name another '
                         'folder') from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            file.close()
            raise
    return file


def is_unused(folder: Path) -> bool:
    """Return whether a folder is not there, or has nothing but the lock of an earlier writer."""
    return not folder.is_dir() or all(each.name == LOCK_FILE for each in folder.iterdir())


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a folder that becomes ``output`` at the end, or is removed after an error.

    ValueError: ``output`` is there, or another process makes it.
    """
    if output.exists():
        raise ValueError(f'{output} exists; name another output')
    # In the same folder, so that the last step is one rename.
    hidden = output.with_name(f'.{output.name}.partial')
    with lock_folder(hidden):
        try:
            new = hidden / 'new'
            # Of a process that was killed.
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            yield new
            new.rename(output)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)


def in_use(path: Path) -> bool:
    """Return whether a process writes the run in the folder ``path``."""
    try:
        with (path / LAUNCH_FILE).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

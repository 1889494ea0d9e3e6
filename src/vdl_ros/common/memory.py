"""How much memory an input may take: its size is checked before it is read."""

import contextlib
import re
import resource
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

# Settings of a training that take memory, whatever else it does.
_LARGE = ('num_envs', 'batch_size', 'unroll_length', 'replay_size', 'replay_batch', 'bc_batch',
          'network', 'hidden_size', 'lstm_size')
# Of NumPy, of PyTorch, of CUDA and its libraries, and of rclpy for a message that it cannot make.
_ASKED = re.compile(r'allocate (\d[\d.]* \w+(?: for an array with shape \([\d, ]*\))?)')
_LACK = re.compile("can't allocate memory|out of memory|ALLOC_FAILED|"
                   'Unable to convert call argument .* to Python object')
_CGROUP = Path('/sys/fs/cgroup')
_FILES = re.compile(r'^(?:in)?active_file (\d+)$', re.MULTILINE)


def free_memory() -> int:
    """Return the bytes that this process may use: those that are free, in its container too."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(ValueError):  # 'max' is no limit
        free = min(free, int(_container('max')) - _used())
    return max(free, 0)


def _used() -> int:
    """Return the bytes that the container uses, without files, which the kernel takes back."""
    files = _FILES.findall(_container('stat'))
    return int(_container('current') or 0) - sum(map(int, files))


def _container(name: str) -> str:
    with contextlib.suppress(OSError):
        return (_CGROUP / f'memory.{name}').read_text()
    return ''


def memory_limit() -> int:
    """Return the most bytes that one input may take: a quarter of the free memory."""
    return free_memory() // 4


def check_size(size: int, what: str) -> None:
    """Raise a ValueError, one line that begins with ``what``, if ``size`` bytes are too many."""
    if size > (most := memory_limit()):
        raise ValueError(f'{what}: {size / 1e6:,.0f} MB in memory are not allowed: at most '
                         f'{most / 1e6:,.0f} MB, a quarter of the free memory')


class OutOfMemoryError(ValueError):
    """More memory was asked for than there is; the message is one line."""


@contextlib.contextmanager
def named_lack_of_memory(settings: Mapping[str, object]) -> Iterator[None]:
    """Raise an OutOfMemoryError with the settings that take memory where the block has too little.

    PyTorch raises a RuntimeError then, on any device.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = ' '.join(str(error).split())
        if not isinstance(error, MemoryError) and not _LACK.search(text):
            raise
        asked = _ASKED.search(text)
        given = ', '.join(f'{name} {settings[name]}' for name in _LARGE if settings.get(name))
        raise OutOfMemoryError(
            f'out of memory{f": {asked[1]} were asked for" if asked else ""}; it takes less with '
            f'smaller {given or ", ".join(_LARGE)}') from error


@contextlib.contextmanager
def limited_memory(what: str) -> Iterator[None]:
    """Let this process take no more memory than one input may, for a library without a limit.

    ValueError: it was not enough for ``what``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory_limit()
    limit = psutil.Process().memory_info().vms + most
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    except MemoryError:
        raise ValueError(f'{what}: more than {most / 1e6:,.0f} MB in memory are not allowed, '
                         'a quarter of the free memory') from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def check_archive(path: Path) -> None:
    """Raise a ValueError if a zip file unpacks to more bytes than it has."""
    with zipfile.ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
    if size > path.stat().st_size:
        raise ValueError(f'it is compressed: {size} bytes of {path.stat().st_size}')

"""Build this checkout and generated interface packages as one colcon workspace."""

from __future__ import annotations

import shutil
from pathlib import Path

from environment import Environment, can_import
from steps import SetupError, Stamp, fingerprint, run


def prepare(root: Path, environment: Environment, *, force: bool = False) -> None:
    """Link the environment to the checkout, and install the ``ros2`` stand-in if required."""
    _link_to_checkout(root, environment.prefix)
    _install_standin(root, environment, force)


def build(root: Path, environment: Environment, *, force: bool = False) -> None:
    python = environment.python
    checkout = _link_to_checkout(root, environment.prefix)
    # These files are installed as links, so only their names matter.
    folders = ('src', 'launch', 'config', 'urdf', 'models', 'benchmarks')
    names = [str(path.relative_to(root)) for folder in folders
             for path in sorted((root / folder).rglob('*'))
             if path.is_file() and '__pycache__' not in path.parts]
    definitions = sorted([root / 'package.xml', root / 'CMakeLists.txt',
                          *(root / 'cmake').iterdir(), *(root / 'msg').iterdir(),
                          *(root / 'srv').iterdir()])
    interfaces = environment.prefix / 'interfaces'
    generated = sorted(path for path in interfaces.rglob('*') if path.is_file())
    stamp = Stamp(root / 'install' / '.stamp', fingerprint(
        [str(root), environment.distribution, str(python), *names, *definitions, *generated]))
    if not stamp.fresh or force:
        _remove_other_messages(root)
        run('workspace', [
            python, '-m', 'colcon', 'build', '--symlink-install', '--base-paths',
            checkout, *([interfaces] if generated else []),
            '--build-base', root / 'build',
            '--install-base', root / 'install', '--event-handlers', 'console_direct+',
            '--cmake-args', f'-DPython3_EXECUTABLE={python}', '-DBUILD_TESTING=OFF',
            f'-DPYTHON_INTERFACES_ONLY={"OFF" if environment.distribution else "ON"}',
        ], environment.prefix / 'log' / 'colcon.log', env=environment.variables(), cwd=root)
        remove_dead_links(root / 'install')
        stamp.set()


def _remove_other_messages(root: Path) -> None:
    """Remove a build with a message or service that is gone: what is generated still needs it."""
    for kind in ('msg', 'srv'):
        built = (root / 'install' / 'vdl_ros' / 'share' / 'vdl_ros' / kind).glob(f'*.{kind}')
        if any(not (root / kind / each.name).is_file() for each in built):
            for folder in ('build', 'install'):
                shutil.rmtree(root / folder / 'vdl_ros', ignore_errors=True)


def remove_dead_links(folder: Path) -> None:
    """Remove links to missing files, which colcon leaves from earlier builds."""
    for path in [each for each in folder.rglob('*') if each.is_symlink()]:
        if not path.exists():
            path.unlink()


def _link_to_checkout(root: Path, prefix: Path) -> Path:
    """Return a link to the checkout, inside the virtual environment.

    CMake refuses to export a target whose include folders, here numpy's, are in the source tree;
    built through the link, the tree does not contain the virtual environment. If the link is
    missing the environment is new, so builds with an earlier one, whose links use it, are removed.
    """
    link = prefix / 'src' / root.name
    if not link.exists():
        for folder in ('build', 'install'):
            shutil.rmtree(root / folder, ignore_errors=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(root)
    return link


def _install_standin(root: Path, environment: Environment, force: bool) -> None:
    if environment.distribution:
        if not can_import(environment.python, 'launch', 'launch_ros', 'ros2launch'):
            raise SetupError(
                f'ROS 2 {environment.distribution} is sourced but lacks ros2launch: '
                f'apt install ros-{environment.distribution}-ros2launch')
        return
    source = root / 'bootstrap' / 'ros2_standin'
    files = sorted(path for path in source.rglob('*.py') if '__pycache__' not in path.parts)
    stamp = Stamp(environment.prefix / 'stamps' / 'standin', fingerprint(
        [source / 'pyproject.toml', *files]))
    if stamp.fresh and not force:
        return
    # From a copy: a build leaves folders that the next build would treat as sources.
    copy = environment.prefix / 'src' / source.name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    environment.index.install('ros2 launch, ros2 run', [copy], '--no-build-isolation', '--no-deps',
                              '--reinstall', '--no-cache')
    stamp.set()

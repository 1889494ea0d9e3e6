"""Build this checkout, and the interface packages the wheels lack, as one colcon workspace."""

from __future__ import annotations

import shutil
from pathlib import Path

from environment import Environment, can_import
from steps import SetupError, Stamp, fingerprint, run


def build(root: Path, environment: Environment, *, force: bool = False) -> None:
    """
    Run colcon where an input has changed, then put the ``ros2`` stand-in where it is needed.

    Raises:
        SetupError: the build failed, or its messages cannot be imported.
    """
    python = environment.python
    checkout = _outside_itself(root, environment.prefix)
    # These files are installed as links: only their names matter.
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
    _install_standin(root, environment, force)


def remove_dead_links(folder: Path) -> None:
    """Remove links to files that are there no more: colcon leaves those of an earlier version."""
    for path in [each for each in folder.rglob('*') if each.is_symlink()]:
        if not path.exists():
            path.unlink()


def _outside_itself(root: Path, prefix: Path) -> Path:
    """
    Return a path of the checkout that is not above the virtual environment.

    CMake refuses to export a target whose include folders, here numpy's, lie in the source tree.
    Where there is none the environment is a new one: what was built with another, whose links
    lead through it, is removed.
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
    """Install bootstrap/ros2_standin if the real launch cannot be imported."""
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
    # From a copy: building leaves folders behind that the next build would take for sources.
    copy = environment.prefix / 'src' / source.name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    environment.index.install('ros2 launch, ros2 run', [copy], '--no-build-isolation', '--no-deps',
                              '--reinstall', '--no-cache')
    stamp.set()

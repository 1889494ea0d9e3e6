"""The `ros2` command of the stand-in: packages, files, executables, and errors."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PACKAGE = 'standin_test_package'


def test_launch_finds_a_file_by_package_name(workspace):
    workspace.launch_file("[LogInfo(msg=['a=', Config('a')])]", 'x.launch.py', installed=True)
    command = workspace.run('launch', PACKAGE, 'x.launch.py', 'a:=1')
    assert command.finish() == 0
    assert command.messages == ['a=1']


def test_launch_names_a_missing_package_or_file(workspace):
    for arguments, line in (
        (('standin_missing', 'x.launch.py'), "Package 'standin_missing' not found: \"package '"),
        ((PACKAGE, 'x.launch.py'), "file 'x.launch.py' was not found in the share directory of "
                                   f"package '{PACKAGE}' which is at '{workspace.share}'"),
        ((PACKAGE,), f"package '{PACKAGE}' is given without the name of a launch file"),
        (('./no/such.launch.py',), "'./no/such.launch.py' is neither a file nor the name of a "),
    ):
        command = workspace.run('launch', *arguments)
        assert command.finish() == 1
        assert command.lines[0].startswith(line)
        assert len(command.lines) == 1
    workspace.launch_file('[]', 'y.launch.py', installed=True)
    (workspace.share / 'y.launch.py').touch()
    command = workspace.run('launch', PACKAGE, 'y.launch.py')
    assert command.finish() == 1
    assert 'was found more than once' in command.output


@pytest.mark.parametrize(('arguments', 'missing'), [
    (['topic', 'list'], "'topic'"),
    (['pkg', 'create', 'x'], "'create'"),
    (['launch', 'x.launch.py', '--print'], '--print'),
])
def test_missing_verbs_and_options_are_named(workspace, arguments, missing):
    command = workspace.run(*arguments)
    assert command.finish() == 2
    assert f'{missing} is not part of this stand-in' in command.lines[-1]


def test_help_lists_verbs_and_options(workspace):
    command = workspace.run()
    assert command.finish() == 0
    assert 'usage: ros2' in command.output
    command = workspace.run('launch', '--help')
    assert command.finish() == 0
    assert '--show-args' in command.output


@pytest.mark.parametrize('status', [0, 7])
def test_run_passes_arguments_and_returns_the_exit_status(workspace, status):
    workspace.executable('echo', f"""
        import os, sys
        print(os.environ['STANDIN_P'], sys.argv[1:])
        sys.exit({status})
    """)
    command = workspace.run('run', '--prefix', "env 'STANDIN_P=a b'", PACKAGE, 'echo',
                            '--ros-args', '-p', 'a:=1', '-h')
    assert command.finish() == status
    assert command.lines == ["a b ['--ros-args', '-p', 'a:=1', '-h']"]


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_run_passes_signals_on(workspace, signum):
    workspace.executable('wait', """
        import signal, sys, time
        def end(number, frame):
            print('got', number, flush=True)
            sys.exit(5)
        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        print('up', flush=True)
        while True:
            time.sleep(0.1)
    """)
    command = workspace.start('run', PACKAGE, 'wait')
    command.wait_for('up')
    command.send(signum)
    assert command.finish() == 5
    assert command.lines == ['up', f'got {int(signum)}']


def test_run_and_pkg_find_packages_and_executables(workspace):
    workspace.executable('one', '')
    (workspace.libexec / 'not_executable').touch()
    for arguments, status, lines in (
        (('run', PACKAGE, 'missing'), 1, ['No executable found']),
        (('run', 'standin_missing', 'x'), 1, ["Package 'standin_missing' not found"]),
        (('pkg', 'prefix', PACKAGE), 0, [str(workspace.prefix)]),
        (('pkg', 'prefix', '--share', PACKAGE), 0, [str(workspace.share)]),
        (('pkg', 'prefix', 'standin_missing'), 1, ['Package not found']),
        (('pkg', 'executables', PACKAGE), 0, [f'{PACKAGE} one']),
    ):
        command = workspace.run(*arguments)
        assert (command.finish(), command.lines) == (status, lines)
    assert PACKAGE in workspace.run('pkg', 'list').lines


def test_launch_imports_no_rclpy(workspace):
    """Importing rclpy takes longer than all the rest."""
    script = (
        'import sys, ros2_command.launch, launch_ros.actions; '
        "print([name for name in ('rclpy', 'numpy', 'lifecycle_msgs') if name in sys.modules])")
    result = subprocess.run(
        [sys.executable, '-c', script], env=workspace.environment, capture_output=True, text=True,
        check=True)
    assert result.stdout == '[]\n'


def test_pyproject_lists_every_package(workspace):
    project = (workspace.standin / 'pyproject.toml').read_text()
    packages = {
        '.'.join(path.parent.relative_to(workspace.standin).parts)
        for top in ('launch', 'launch_ros', 'ros2_command')
        for path in (workspace.standin / top).rglob('__init__.py')}
    assert all(f"'{package}'" in project.split('packages = [')[1] for package in packages)

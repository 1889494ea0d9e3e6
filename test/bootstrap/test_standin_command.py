"""The stand-in's `ros2`: finding packages and files, running executables, naming what it lacks."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PACKAGE = 'standin_test_package'


def test_launch_by_package_name(workspace):
    workspace.launch_file("[LogInfo(msg=['a=', Config('a')])]", 'x.launch.py', installed=True)
    command = workspace.run('launch', PACKAGE, 'x.launch.py', 'a:=1')
    assert command.finish() == 0
    assert workspace.user_messages(command) == ['a=1']


def test_a_package_or_file_that_is_missing(workspace):
    command = workspace.run('launch', 'standin_missing', 'x.launch.py')
    assert command.finish() == 1
    assert command.output.startswith(
        'Package \'standin_missing\' not found: "package \'standin_missing\' not found, searching:'
    )
    command = workspace.run('launch', PACKAGE, 'x.launch.py')
    assert command.finish() == 1
    assert command.lines == [
        f"file 'x.launch.py' was not found in the share directory of package '{PACKAGE}' which "
        f"is at '{workspace.share}'"
    ]
    command = workspace.run('launch', './no/such.launch.py')
    assert command.finish() == 1
    assert command.lines == [
        "'./no/such.launch.py' is neither a file nor the name of a package"
    ]


def test_a_launch_file_that_is_there_twice(workspace):
    workspace.launch_file('[]', 'x.launch.py', installed=True)
    (workspace.share / 'x.launch.py').touch()
    command = workspace.run('launch', PACKAGE, 'x.launch.py')
    assert command.finish() == 1
    assert 'was found more than once' in command.output


@pytest.mark.parametrize('arguments', [['topic', 'list'], ['pkg', 'create', 'x']])
def test_unknown_verbs_are_named(workspace, arguments):
    command = workspace.run(*arguments)
    assert command.finish() == 2
    asked = arguments[0] if arguments[0] != 'pkg' else 'create'
    assert f"'{asked}' is not part of this stand-in" in command.output


def test_help(workspace):
    command = workspace.run()
    assert command.finish() == 0
    assert 'usage: ros2' in command.output
    command = workspace.run('launch', '--help')
    assert command.finish() == 0
    assert '--show-args' in command.output


@pytest.mark.parametrize('status', [0, 7])
def test_run_passes_arguments_and_gives_the_exit_status(workspace, status):
    workspace.executable('tell', f'import sys; print(sys.argv[1:]); sys.exit({status})')
    command = workspace.run('run', PACKAGE, 'tell', '--ros-args', '-p', 'a:=1', '-h')
    assert command.finish() == status
    assert command.lines == ["['--ros-args', '-p', 'a:=1', '-h']"]


def test_run_with_a_prefix(workspace):
    workspace.executable('tell', "import os; print(os.environ['STANDIN_P'])")
    command = workspace.run('run', '--prefix', "env 'STANDIN_P=a b'", PACKAGE, 'tell')
    assert command.lines == ['a b']


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_run_passes_signals_on(workspace, signum):
    workspace.executable(
        'wait',
        """
        import signal, sys, time
        def end(number, frame):
            print('got', number, flush=True)
            sys.exit(5)
        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        print('up', flush=True)
        while True:
            time.sleep(0.1)
        """,
    )
    command = workspace.start('run', PACKAGE, 'wait')
    command.wait_for('up')
    command.send(signum)
    assert command.finish() == 5
    assert command.lines == ['up', f'got {int(signum)}']


def test_run_of_what_is_missing(workspace):
    command = workspace.run('run', PACKAGE, 'missing')
    assert (command.finish(), command.lines) == (1, ['No executable found'])
    command = workspace.run('run', 'standin_missing', 'x')
    assert (command.finish(), command.lines) == (1, ["Package 'standin_missing' not found"])


def test_pkg(workspace):
    workspace.executable('tell', '')
    (workspace.libexec / 'not_executable').touch()
    assert PACKAGE in workspace.run('pkg', 'list').lines
    assert workspace.run('pkg', 'prefix', PACKAGE).lines == [str(workspace.prefix)]
    assert workspace.run('pkg', 'prefix', '--share', PACKAGE).lines == [str(workspace.share)]
    assert workspace.run('pkg', 'executables', PACKAGE).lines == [f'{PACKAGE} tell']
    command = workspace.run('pkg', 'prefix', 'standin_missing')
    assert (command.finish(), command.lines) == (1, ['Package not found'])


def test_a_launch_does_not_import_what_it_does_not_need(workspace):
    """Keeps the start quick: rclpy alone takes longer than all the rest."""
    script = (
        'import sys, ros2_command.launch, launch_ros.actions; '
        "print([name for name in ('rclpy', 'numpy', 'lifecycle_msgs') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, '-c', script],
        env=workspace.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == '[]\n'


def test_every_package_is_installed(workspace):
    """Fails if a package is added without being listed in pyproject.toml."""
    standin = workspace.standin
    project = (standin / 'pyproject.toml').read_text()
    packages = {
        '.'.join(path.parent.relative_to(standin).parts)
        for top in ('launch', 'launch_ros', 'ros2_command')
        for path in (standin / top).rglob('__init__.py')
    }
    listed = {line.strip(" ',") for line in project.split('packages = [')[1].splitlines()}
    assert packages <= listed

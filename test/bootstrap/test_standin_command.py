"""The `ros2` command of the stand-in: packages, files, executables, errors, and real processes."""

import contextlib
import os
import pty
import re
import signal
import sys

import pytest

PACKAGE = 'standin_test_package'


@pytest.fixture
def real(workspace, monkeypatch):
    """Return the words with which `ros2` is a process of its own."""
    monkeypatch.setenv('PYTHONPATH', f"{workspace.standin}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv('PYTHONDONTWRITEBYTECODE', '1')
    return [sys.executable, '-m', 'ros2_command']


def test_a_removed_working_directory_is_one_line(workspace, tmp_path, monkeypatch):
    gone = tmp_path / 'gone'
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = workspace.run('launch', 'x')
    assert (found.status, found.lines) == (
        1, ['the working directory was removed: change to one that exists'])


def test_missing_packages_files_and_executables_are_one_line(workspace):
    (workspace.libexec / 'not_executable').touch()
    workspace.launch_file('[]', 'y.launch.py', installed=True)
    (workspace.share / 'y.launch.py').touch()
    for words, line in (
        ('launch standin_missing x.launch.py', "Package 'standin_missing' not found: \"package '"),
        (f'launch {PACKAGE} x.launch.py', "file 'x.launch.py' was not found in the share directory"
                                          f" of package '{PACKAGE}' which is at "
                                          f"'{workspace.share}'"),
        (f'launch {PACKAGE}', f"package '{PACKAGE}' is given without the name of a launch file"),
        (f'launch {PACKAGE} y.launch.py', "file 'y.launch.py' was found more than once in the "),
        ('launch ./no/such.launch.py', "'./no/such.launch.py' is neither a file nor the name of "),
        (f'run {PACKAGE} missing', 'No executable found'),
        (f'run {PACKAGE} not_executable', 'No executable found'),
        ('run standin_missing x', "Package 'standin_missing' not found"),
        ('pkg prefix standin_missing', 'Package not found'),
    ):
        command = workspace.run(*words.split())
        assert (command.status, len(command.lines)) == (1, 1), words
        assert command.lines[0].startswith(line), words


def test_packages_their_files_and_executables_are_found(workspace):
    workspace.launch_file("[LogInfo(msg=['a=', Config('a')])]", 'x.launch.py', installed=True)
    assert workspace.run('launch', PACKAGE, 'x.launch.py', 'a:=1').messages == ['a=1']
    for words, line in (('prefix', workspace.prefix), ('prefix --share', workspace.share),
                        ('executables', f'{PACKAGE} program')):
        command = workspace.run('pkg', *words.split(), PACKAGE)
        assert (command.status, command.output) == (0, str(line)), words
    assert PACKAGE in workspace.run('pkg', 'list').lines


def test_missing_verbs_and_options_are_named(workspace):
    assert '--show-args' in workspace.run('launch', '--help').output
    for words, missing in (('topic list', "'topic'"), ('launch x.launch.py --print', '--print')):
        command = workspace.run(*words.split())
        assert command.status == 2, words
        assert f'{missing} is not part of this stand-in' in command.lines[-1]


def test_run_becomes_the_executable_with_arguments_signals_and_status(workspace, real, launch):
    workspace.executable('wait', """
        import os, signal, sys, time
        signal.signal(signal.SIGINT, lambda number, frame: sys.exit(5))
        print('up', os.environ['STANDIN_P'], sys.argv[1:], flush=True)
        while True:  # signal.pause() would miss a signal that comes just before it
            time.sleep(0.05)
    """)
    command = launch(*real, 'run', '--prefix', "env 'STANDIN_P=a b'", PACKAGE, 'wait',
                     '--ros-args', '-h')
    command.wait_for(lambda: 'up' in command.output, 'the executable')
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 5
    assert command.output == "up a b ['--ros-args', '-h']\n"


def test_ctrl_c_in_a_terminal_reaches_a_process_once(workspace, real):
    """The terminal sends it to the process as well, so the launch does not; and it is light."""
    path = workspace.launch_file("""
        def heavy(context):
            names = {'rclpy', 'numpy', 'lifecycle_msgs'} & {*sys.modules}
            return [LogInfo(msg=f'imported: {names}')]

        return LaunchDescription([OpaqueFunction(function=heavy), sh(
            'trap "echo got SIGINT; exit 0" INT; echo up; read line', name='a', output='screen',
            sigterm_timeout='600')])
    """)
    child, terminal = pty.fork()
    if child == 0:
        os.execv(real[0], [*real, 'launch', path])
    written = b''
    try:
        while b'[a-1] up' not in written:
            written += os.read(terminal, 1024)
        os.write(terminal, b'\x03')
        # On Linux, reading fails once all others have closed the terminal.
        with contextlib.suppress(OSError):
            while data := os.read(terminal, 1024):
                written += data
    finally:
        _, status = os.waitpid(child, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b'imported: set()' in written, 'importing rclpy takes longer than all the rest'
    assert b"sending signal 'SIGINT'" not in written
    assert re.findall(rb'\[a-1\] got (\w+)', written) == [b'SIGINT']
    assert b'[a-1]: process has finished cleanly' in written


def test_pyproject_lists_every_package(workspace):
    listed = (workspace.standin / 'pyproject.toml').read_text().split('packages = [')[1]
    for path in workspace.standin.glob('*/**/__init__.py'):
        package = '.'.join(path.parent.relative_to(workspace.standin).parts)
        assert f"'{package}'" in listed

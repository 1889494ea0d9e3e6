"""Processes under the stand-in: output, exit handlers, restarts, and how they are stopped."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import sys

import psutil
import pytest

# Prints the signals it gets, and ends LIFETIME seconds after the first one.
SIGNALLED = """\
import signal, time
ends = []
def on_signal(number, frame):
    print('got', signal.Signals(number).name)
    ends.append(time.monotonic() + LIFETIME)
signal.signal(signal.SIGINT, on_signal)
signal.signal(signal.SIGTERM, on_signal)
print('up')
while not ends or time.monotonic() < ends[0]:
    time.sleep(0.02)
"""
PATIENT = SIGNALLED.replace('LIFETIME', '0.5')
STUBBORN = SIGNALLED.replace('LIFETIME', '1000')


def test_messages_and_prefixes(workspace):
    command = workspace.launch("""[
        sh('echo out; echo err >&2; printf rest', name='clean', output='screen'),
        sh('exit 3', name='dead'),
        ExecuteProcess(cmd=['echo', Config('x', default='hello')], output='screen'),
        ExecuteProcess(cmd=['/no/such/program']),
        LogInfo(msg='next'),
    ]""")
    lines = [re.sub(r'pid (\[?)\d+', r'pid \1N', line) for line in command.lines]
    assert lines[0].startswith('[INFO] [launch]: All log files can be found below ')
    assert lines[1] == '[INFO] [launch]: Default logging verbosity is set to INFO'
    assert sorted(line for line in lines[2:] if line.startswith('[')) == sorted([
        '[INFO] [clean-1]: process started with pid [N]',
        '[clean-1] out',
        '[clean-1] err',
        '[clean-1] rest',
        '[INFO] [clean-1]: process has finished cleanly [pid N]',
        '[INFO] [dead-2]: process started with pid [N]',
        "[ERROR] [dead-2]: process has died [pid N, exit code 3, cmd 'sh -c exit 3'].",
        '[INFO] [echo-3]: process started with pid [N]',
        '[echo-3] hello',
        '[INFO] [echo-3]: process has finished cleanly [pid N]',
        '[ERROR] [program-4]: exception occurred while executing process:',
        '[INFO] [launch.user]: next',
    ])
    assert command.finish() == 0


@pytest.mark.parametrize(('output', 'screen', 'log'), [
    ("'log'", {'err'}, {'out', 'err'}),
    ("'screen'", {'out', 'err'}, set()),
    ("'both'", {'out', 'err'}, {'out', 'err'}),
    ("Config('o', default='screen')", {'out', 'err'}, set()),
])
def test_output_goes_to_the_screen_and_to_the_log(workspace, output, screen, log):
    command = workspace.launch(f"[sh('echo out; echo err >&2', name='p', output={output})]")
    written = (workspace.directory / 'log' / 'latest' / 'launch.log').read_text()
    assert {line for line in command.lines if line.startswith('[p-1]')} == {
        f'[p-1] {text}' for text in screen}
    assert {text for text in ('out', 'err') if f' [p-1] {text}\n' in written} == log
    assert '[INFO] [p-1]: process started' in written


def test_an_unknown_output_is_named(workspace):
    command = workspace.launch("[sh('true', output='own_log')]")
    assert command.finish() == 1
    assert "output 'own_log' is not part of this stand-in" in command.output


def test_exit_and_shutdown_handlers(workspace):
    command = workspace.launch("""
        first = sh('exit 4', name='first')
        second = sh('true', name='second', on_exit=[LogInfo(msg='on_exit')])

        def ended(event, context):
            return LogInfo(msg=f'{event.process_name} {event.returncode} {event.cmd[0]}')

        return LaunchDescription([
            RegisterEventHandler(OnProcessExit(target_action=first, on_exit=[second])),
            RegisterEventHandler(OnProcessExit(target_action=lambda action: action is not second,
                                               on_exit=ended)),
            RegisterEventHandler(OnShutdown(on_shutdown=lambda event, context: [
                LogInfo(msg=['shutdown ', context.locals.event.reason])])),
            first,
        ])
    """)
    assert command.messages == ['first-1 4 sh', 'on_exit', 'shutdown idle']


def test_the_end_of_a_required_process_ends_the_launch(workspace):
    command = workspace.start_launch("""[
        py('input()', name='other'), sh('exit 4', name='main', on_exit=[Shutdown()])]""")
    (pid, _) = command.pids('other-1', 'main-2')
    assert command.finish() == 0
    assert ('[INFO] [launch]: process[main-2] was required: shutting down launched system'
            in command.lines)
    assert "[INFO] [other-1]: sending signal 'SIGINT' to process[other-1]" in command.lines
    assert not psutil.pid_exists(pid)


def test_respawn_stops_after_the_retries(workspace):
    command = workspace.launch("""[
        sh('echo run', name='again', respawn=True, respawn_max_retries=2, respawn_delay=0.05,
           output='screen'),
        sh('echo run', name='once', output='screen'),
    ]""")
    assert command.output.count('[again-1] run') == 3
    assert command.output.count('[once-2] run') == 1


@pytest.mark.parametrize('delay', ['0.0', '1000.0'])
def test_respawn_stops_at_a_shutdown(workspace, delay):
    command = workspace.start_launch(
        f"[sh('exit 1', name='p', respawn=True, respawn_delay={delay})]")
    command.wait_for('process has died')
    command.send(signal.SIGINT)
    assert command.finish() == 0


def test_a_timer_runs_its_actions_in_a_scope_of_the_handler(workspace):
    command = workspace.launch("""[
        sh('exit 1', name='p', on_exit=[TimerAction(period=0.05, cancel_on_shutdown=True, actions=[
            GroupAction([SetLaunchConfiguration('a', 'A'), LogInfo(msg=['in ', Config('a')]),
                         sh('echo later', name='q', output='screen')])])]),
    ]""")
    assert command.messages == ['in A']
    assert command.output.count('[q-2] later') == 1
    assert command.finish() == 0


def test_a_timer_ends_at_a_shutdown(workspace):
    command = workspace.start_launch("""[
        sh('exit 1', name='p', on_exit=[LogInfo(msg='waits'), TimerAction(
            period=1000.0, cancel_on_shutdown=True, actions=[LogInfo(msg='never')])]),
    ]""")
    command.wait_for('waits')
    command.send(signal.SIGINT)
    assert command.finish() == 0
    assert command.messages == ['waits']


def test_signals_escalate_up_to_sigkill(workspace):
    command = workspace.start_launch(
        f'[py({STUBBORN!r}, name="p", output="screen", sigterm_timeout="2.5", '
        'sigkill_timeout=Config("k", default=3.0))]')
    (pid,) = command.pids('p-1')
    command.wait_for('[p-1] up')
    command.send(signal.SIGINT)
    assert command.finish() == 0
    assert not psutil.pid_exists(pid)
    lines = [line for line in command.lines if '[p-1]' in line][2:]
    # Its own lines come when it gets a processor, in between or later.
    assert [line for line in lines if line.startswith('[p-1] ')] == [
        '[p-1] got SIGINT', '[p-1] got SIGTERM']
    events = [line for line in lines if not line.startswith('[p-1] ')]
    assert events[:-1] == [
        "[INFO] [p-1]: sending signal 'SIGINT' to process[p-1]",
        "[ERROR] [p-1]: process[p-1] failed to terminate '2.5' seconds after receiving 'SIGINT', "
        "escalating to 'SIGTERM'",
        "[INFO] [p-1]: sending signal 'SIGTERM' to process[p-1]",
        "[ERROR] [p-1]: process[p-1] failed to terminate '5.5' seconds after receiving 'SIGTERM', "
        "escalating to 'SIGKILL'",
        "[INFO] [p-1]: sending signal 'SIGKILL' to process[p-1]",
    ]
    assert 'exit code -9' in events[-1]


@pytest.mark.parametrize(
    ('signum', 'status'),
    [(signal.SIGINT, 0), (signal.SIGTERM, 1), (signal.SIGQUIT, 1), (signal.SIGHUP, 1)])
def test_nothing_is_left_running_after_a_signal(workspace, signum, status):
    command = workspace.start_launch(
        f'[py({PATIENT!r}, name="a", output="screen"), sh("exec sleep 1000", name="b"), '
        f'py({STUBBORN!r}, name="c", output="screen", sigterm_timeout="0.2", '
        'sigkill_timeout="0.2")]')
    pids = command.pids('a-1', 'b-2', 'c-3')
    command.wait_for('] up', times=2)
    command.send(signum)
    assert command.finish() == status
    assert not any(psutil.pid_exists(pid) for pid in pids)
    # The patient one gets no second signal.
    assert [line for line in command.lines if line.startswith('[a-1] got')] == ['[a-1] got SIGINT']
    assert '[INFO] [a-1]: process has finished cleanly' in command.output


def test_a_second_sigint_is_ignored(workspace):
    command = workspace.start_launch(
        f'[py({STUBBORN!r}, name="a", output="screen", sigterm_timeout="1000")]')
    (pid,) = command.pids('a-1')
    command.wait_for('[a-1] up')
    command.send(signal.SIGINT)
    command.wait_for('[a-1] got SIGINT')
    command.send(signal.SIGINT)
    command.wait_for('user interrupted with ctrl-c (SIGINT) again, ignoring...')
    os.kill(pid, signal.SIGKILL)
    assert command.finish() == 0
    assert command.output.count("sending signal 'SIGINT'") == 1
    assert command.output.count('[a-1] got') == 1


@pytest.mark.parametrize('options', [[], ['--debug']])
def test_an_error_stops_all_processes_and_has_a_traceback_with_debug(workspace, options):
    path = workspace.launch_file("""[
        sh('exec sleep 1000', name='a'),
        RegisterEventHandler(OnProcessExit(on_exit=lambda event, context: 1 / 0)),
        sh('true', name='b'),
    ]""")
    command = workspace.start('launch', *options, path)
    pid = command.pids('a-1')[0]
    assert command.finish() == 1
    assert ('Caught exception in launch (see debug for traceback): division by zero'
            in command.output)
    assert ('ZeroDivisionError' in command.output) == bool(options)
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize('by_terminal', [True, False])
def test_sigint_in_the_foreground_of_a_terminal(workspace, by_terminal):
    """
    After a Ctrl-C the process gets SIGINT from the terminal, and no second one from the launch.

    After a SIGINT to the launch alone the process gets the SIGTERM that follows.
    """
    timeout = 60 if by_terminal else 0.8
    path = workspace.launch_file(
        f'[py({PATIENT!r}, name="a", output="screen", sigterm_timeout="{timeout}")]')
    command = [sys.executable, '-m', 'ros2_command', 'launch', path]
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, workspace.environment)
    written = b''
    try:
        while b'[a-1] up' not in written:
            written += os.read(terminal, 1024)
        if by_terminal:
            os.write(terminal, b'\x03')
        else:
            os.kill(child, signal.SIGINT)
        # On Linux, reading fails once all others have closed the terminal.
        with contextlib.suppress(OSError):
            while data := os.read(terminal, 1024):
                written += data
    finally:
        _, status = os.waitpid(child, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"sending signal 'SIGINT'" not in written
    assert re.findall(rb'\[a-1\] got (\w+)', written) == [b'SIGINT' if by_terminal else b'SIGTERM']
    assert b'[a-1]: process has finished cleanly' in written

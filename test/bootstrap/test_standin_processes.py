"""Processes under the stand-in: output, events, restarts, and how they are brought down."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import sys

import pytest

# Writes the names of the signals it gets and goes on.
STUBBORN = """\
import signal, time
def say(number, frame):
    print('got', signal.Signals(number).name)
signal.signal(signal.SIGINT, say)
signal.signal(signal.SIGTERM, say)
print('up')
while True:
    time.sleep(0.1)
"""
# Ends a while after the first SIGINT, and writes whenever it gets one.
PATIENT = """\
import signal, time
ends = []
def say(number, frame):
    print('got', signal.Signals(number).name)
    ends.append(time.monotonic() + 0.5)
signal.signal(signal.SIGINT, say)
signal.signal(signal.SIGTERM, say)
print('up')
while not ends or time.monotonic() < ends[0]:
    time.sleep(0.02)
"""


def launch_log(workspace):
    return (workspace.directory / 'log' / 'latest' / 'launch.log').read_text()


def test_messages_and_prefixes(workspace):
    command = workspace.launch(
        """[
        sh('echo out; echo err >&2; printf rest', name='clean', output='screen'),
        sh('exit 3', name='dead'),
        ExecuteProcess(cmd=['echo', Config('x', default='hello')], output='screen'),
    ]"""
    )
    lines = [re.sub(r'pid (\[?)\d+', r'pid \1N', line) for line in command.lines]
    log_line, level_line, *rest = lines
    assert log_line.startswith('[INFO] [launch]: All log files can be found below ')
    assert level_line == '[INFO] [launch]: Default logging verbosity is set to INFO'
    assert sorted(rest) == sorted(
        [
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
        ]
    )
    assert command.finish() == 0


@pytest.mark.parametrize(
    ('output', 'screen', 'log', 'files'),
    [
        ("'log'", ['err'], ['out', 'err'], []),
        ("'screen'", ['out', 'err'], [], []),
        ("'both'", ['out', 'err'], ['out', 'err'], []),
        ("'own_log'", [], [], ['p-1-stderr.log', 'p-1-stdout.log', 'p-1.log']),
        ("{'stdout': 'screen', 'stderr': 'log'}", ['out'], ['err'], []),
        ("{'both': {'screen', 'own_log'}}", ['out', 'err'], [], ['p-1.log']),
        ("Config('o', default='screen')", ['out', 'err'], [], []),
    ],
)
def test_where_output_goes(workspace, output, screen, log, files):
    command = workspace.launch(f"[sh('echo out; echo err >&2', name='p', output={output})]")
    written = launch_log(workspace)
    assert {line for line in command.lines if line.startswith('[p-1]')} == {
        f'[p-1] {text}' for text in screen
    }
    assert {text for text in ('out', 'err') if f' [p-1] {text}\n' in written} == set(log)
    directory = workspace.directory / 'log' / 'latest'
    assert sorted(path.name for path in directory.iterdir()) == ['launch.log', *files]
    if 'p-1.log' in files:
        text = (directory / 'p-1.log').read_text()
        assert sorted(text.splitlines()) == ['[p-1] err', '[p-1] out']


def test_all_output_can_be_asked_for(workspace):
    path = workspace.launch_file("[sh('echo out', name='p')]")
    assert '[p-1] out' not in workspace.run('launch', path).lines
    assert '[p-1] out' in workspace.run('launch', '-a', path).lines


def test_an_unknown_output_is_an_error(workspace):
    command = workspace.launch("[sh('true', output='nowhere')]")
    assert command.finish() == 1
    assert 'nowhere is not a valid standard output config' in command.output


def test_options_of_a_process(workspace):
    (workspace.directory / 'there').mkdir()
    command = workspace.launch(
        """
        tty = 'test -t 1 && echo terminal || echo pipe'
        return LaunchDescription([
            sh('pwd', cwd='there', name='cwd', output='screen'),
            sh('echo $A$B', env={'A': 'a'}, additional_env={'B': Config('b', default='b')},
               prefix='/usr/bin/env', name='env', output='screen'),
            ExecuteProcess(cmd=['echo', 'it is', '$((1 + 2))'], shell=True, name='shell',
                           output='screen'),
            sh(tty, name='tty', emulate_tty=True, output='screen'),
            sh(tty, name='notty', output='screen'),
            sh('echo x', name='format', output='screen', output_format='<{line}>'),
        ])
        """
    )
    lines = [line for line in command.lines if 'process ' not in line and 'launch' not in line]
    assert sorted(lines) == [
        '<x>',
        f"[cwd-1] {workspace.directory / 'there'}",
        '[env-2] ab',
        '[notty-5] pipe',
        '[shell-3] it is 3',
        '[tty-4] terminal',
    ]


def test_launch_prefix(workspace):
    path = workspace.launch_file("[sh('echo $P', output='screen'), ExecuteProcess(cmd=['true'])]")
    arguments = ['--launch-prefix', 'env P=prefixed', '--launch-prefix-filter', 's']
    command = workspace.run('launch', *arguments, path)
    assert '[env-1] prefixed' in command.lines
    assert '[true-2]' in command.output


def test_a_program_that_cannot_be_started(workspace):
    command = workspace.launch("[ExecuteProcess(cmd=['/no/such/program']), LogInfo(msg='next')]")
    assert '[ERROR] [program-1]: exception occurred while executing process:' in command.lines
    assert workspace.user_messages(command) == ['next']
    assert command.finish() == 0


def test_event_handlers(workspace):
    command = workspace.launch(
        """
        first = sh('echo hello; exit 4', name='first')
        second = sh('true', name='second', on_exit=[LogInfo(msg='on_exit')])

        def ended(event, context):
            return LogInfo(msg=f'{event.process_name} {event.returncode} {event.cmd[0]}')

        def said(event):
            return LogInfo(msg='io ' + event.text.decode().strip())

        return LaunchDescription([
            RegisterEventHandler(OnProcessStart(target_action=first,
                                                on_start=[LogInfo(msg='start')])),
            RegisterEventHandler(OnProcessIO(target_action=first, on_stdout=said)),
            RegisterEventHandler(OnProcessExit(target_action=first, on_exit=[second])),
            RegisterEventHandler(OnProcessExit(target_action=lambda action: action is not second,
                                               on_exit=ended)),
            RegisterEventHandler(OnExecutionComplete(
                target_action=second, on_completion=[LogInfo(msg='complete')])),
            RegisterEventHandler(OnShutdown(on_shutdown=[
                LogInfo(msg=['shutdown ', LocalSubstitution('event.reason')])])),
            first,
        ])
        """
    )
    assert workspace.user_messages(command) == [
        'start',
        'io hello',
        'first-1 4 sh',
        'on_exit',
        'complete',
        'shutdown idle',
    ]


def test_event_handlers_can_be_removed_and_run_once(workspace):
    command = workspace.launch(
        """
        once = OnProcessExit(on_exit=[LogInfo(msg='once')], handle_once=True)
        removed = OnProcessExit(on_exit=[LogInfo(msg='never')])
        return LaunchDescription([
            RegisterEventHandler(once), RegisterEventHandler(removed),
            UnregisterEventHandler(removed), sh('true'), sh('true'),
        ])
        """
    )
    assert workspace.user_messages(command) == ['once']


def test_timers_wait_and_are_cancelled_by_a_shutdown(workspace):
    command = workspace.launch(
        """[
        TimerAction(period=1000.0, actions=[LogInfo(msg='never')]),
        TimerAction(period=0.2, actions=[LogInfo(msg='second'), Shutdown(reason='enough')]),
        TimerAction(period=Config('p', default='0.1'), actions=[LogInfo(msg='first')]),
    ]"""
    )
    assert workspace.user_messages(command) == ['first', 'second']


def test_a_process_that_is_required_ends_the_launch(workspace):
    command = workspace.start_launch(
        """[
        py('input()', name='other', output='screen'),
        RegisterEventHandler(OnProcessStart(
            on_start=lambda event, context: sh('exit 4', name='main', on_exit=[Shutdown()]),
            handle_once=True)),
    ]"""
    )
    (pid, _) = command.pids('other-1', 'main-2')
    assert command.finish() == 0
    assert '[INFO] [launch]: process[main-2] was required: shutting down launched system' in (
        command.lines
    )
    assert "[INFO] [other-1]: sending signal 'SIGINT' to process[other-1]" in command.lines
    assert not workspace.is_running(pid)


def test_signals_can_be_sent_to_processes(workspace):
    command = workspace.launch(
        """
        one = sh('exec sleep 1000', name='one')
        two = sh('exec sleep 1000', name='two')
        return LaunchDescription([
            one, two,
            RegisterEventHandler(OnProcessStart(target_action=two, on_start=[EmitEvent(
                event=SignalProcess(signal_number=signal.SIGTERM,
                                    process_matcher=matches_action(one)))])),
            RegisterEventHandler(OnProcessExit(target_action=one, on_exit=[EmitEvent(
                event=ShutdownProcess(process_matcher=matches_name('two-2')))])),
        ])
        """
    )
    assert re.search(r'\[one-1\]: process has died \[pid \d+, exit code -15', command.output)
    assert re.search(r'\[two-2\]: process has died \[pid \d+, exit code -2', command.output)
    assert command.finish() == 0


def test_respawn_stops_after_the_retries(workspace):
    command = workspace.launch(
        """[
        sh('echo run', name='again', respawn=True, respawn_max_retries=2, respawn_delay=0.05,
           output='screen'),
        sh('echo run', name='once', respawn=Config('r', default='false'), output='screen'),
    ]"""
    )
    assert command.output.count('[again-1] run') == 3
    assert command.output.count('[once-2] run') == 1


@pytest.mark.parametrize('delay', ['0.0', '1000.0'])
def test_respawn_stops_at_a_shutdown(workspace, delay):
    command = workspace.start_launch(
        f"[sh('exit 1', name='p', respawn=True, respawn_delay={delay})]"
    )
    command.wait_for('process has died')
    command.send(signal.SIGINT)
    assert command.finish() == 0


def test_escalation_up_to_sigkill(workspace):
    command = workspace.start_launch(
        f'[py({STUBBORN!r}, name="p", output="screen", sigterm_timeout="2.5", '
        'sigkill_timeout=Config("k", default=3.0))]'
    )
    (pid,) = command.pids('p-1')
    command.wait_for('[p-1] up')
    command.send(signal.SIGINT)
    assert command.finish() == 0
    assert not workspace.is_running(pid)
    events = [line for line in command.lines if '[p-1]' in line][2:]
    # Its lines come when it has a processor, in between or later.
    assert [line for line in events if line.startswith('[p-1] ')] == [
        '[p-1] got SIGINT', '[p-1] got SIGTERM']
    events = [line for line in events if not line.startswith('[p-1] ')]
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
    [(signal.SIGINT, 0), (signal.SIGTERM, 1), (signal.SIGQUIT, 1), (signal.SIGHUP, 1)],
)
def test_nothing_is_left_running_after_a_signal(workspace, signum, status):
    command = workspace.start_launch(
        f'[py({PATIENT!r}, name="a", output="screen"), sh("exec sleep 1000", name="b"), '
        f'py({STUBBORN!r}, name="c", output="screen", sigterm_timeout="0.2", '
        'sigkill_timeout="0.2")]'
    )
    pids = command.pids('a-1', 'b-2', 'c-3')
    command.wait_for('] up', times=2)
    command.send(signum)
    assert command.finish() == status
    assert not any(workspace.is_running(pid) for pid in pids)
    # The one that ends in its own time was left to do so.
    assert [line for line in command.lines if line.startswith('[a-1] got')] == ['[a-1] got SIGINT']
    assert '[INFO] [a-1]: process has finished cleanly' in command.output


def test_a_second_sigint_is_ignored(workspace):
    command = workspace.start_launch(
        f'[py({STUBBORN!r}, name="a", output="screen", sigterm_timeout="1000")]'
    )
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


def test_what_a_shell_has_started_is_brought_down_with_it(workspace):
    command = workspace.start_launch(
        '[ExecuteProcess(cmd=["sleep 1000 & echo pid $!; wait; true"], shell=True, name="s", '
        'sigterm_timeout="0.2", output="screen")]'
    )
    command.wait_for('[s-1] pid ')
    (line,) = [line for line in command.lines if line.startswith('[s-1] pid ')]
    pid = int(line.split()[-1])
    assert workspace.is_running(pid)
    command.send(signal.SIGTERM)
    assert command.finish() == 1
    workspace.wait_until(lambda: not workspace.is_running(pid), 'the end of the sleep')


def test_an_error_while_launching_brings_everything_down(workspace):
    command = workspace.start_launch(
        """[
        sh('exec sleep 1000', name='a'),
        RegisterEventHandler(OnProcessStart(on_start=lambda event, context: 1 / 0)),
    ]"""
    )
    (pid,) = command.pids('a-1')
    assert command.finish() == 1
    assert 'Caught exception in launch (see debug for traceback): division by zero' in (
        command.output
    )
    assert not workspace.is_running(pid)


def test_debug_shows_the_traceback(workspace):
    path = workspace.launch_file('[OpaqueFunction(function=lambda context: 1 / 0)]')
    assert 'ZeroDivisionError' not in workspace.run('launch', path).output
    assert 'ZeroDivisionError' in workspace.run('launch', '-d', path).output


@pytest.mark.parametrize('by_terminal', [True, False])
def test_sigint_while_in_the_foreground_of_a_terminal(workspace, by_terminal):
    """
    After a Ctrl-C the process has its SIGINT from the terminal, and must not get a second one.

    With a SIGINT that only the launch got the process ends as well, by what comes next.
    """
    # What has its SIGINT ends in its own time, however long that takes.
    timeout = 60 if by_terminal else 0.8
    path = workspace.launch_file(
        f'[py({PATIENT!r}, name="a", output="screen", sigterm_timeout="{timeout}")]'
    )
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
        # Linux says with an error that nobody has the terminal open any more.
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

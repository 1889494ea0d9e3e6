"""Processes under the stand-in: output, exit handlers, restarts, and how they are stopped."""

import os
import re
import signal

import psutil

UP = ']: process started with pid ['


def send(number):
    """Return a function that sends this process, which is the launch, a signal."""
    return lambda: os.kill(os.getpid(), number)


def test_output_of_a_real_process_and_messages_of_the_launch(workspace):
    command = workspace.launch("""[
        sh('echo out; echo err >&2; printf rest', output='screen'),
        program('exit 3', name='dead'),
        ExecuteProcess(cmd=['/no/such/file']),
    ]""")
    lines = [re.sub(r'pid (\[?)\d+', r'pid \1N', line) for line in command.lines]
    assert {'[sh-1] out', '[sh-1] err', '[sh-1] rest',
            '[INFO] [sh-1]: process started with pid [N]',
            '[INFO] [sh-1]: process has finished cleanly [pid N]',
            "[ERROR] [dead-2]: process has died [pid N, exit code 3, cmd 'program exit 3'].",
            '[ERROR] [file-3]: exception occurred while executing process:'} <= set(lines)
    assert command.status == 0


def test_output_goes_to_the_screen_and_to_the_log(workspace):
    command = workspace.launch("""[
        program('1 out', '2 err', name='default'),
        program('1 out', '2 err', name='screen', output=Config('o', default='screen')),
        program('1 out', '2 err', name='both', output='both'),
    ]""")
    written = (workspace.directory / 'log' / 'latest' / 'launch.log').read_text()
    for name, screen, log in (('default-1', ['err'], ['out', 'err']),
                              ('screen-2', ['out', 'err'], []),
                              ('both-3', ['out', 'err'], ['out', 'err'])):
        for text, expected in ((command.output, screen), (written, log)):
            assert re.findall(rf'\[{name}\] (\w+)$', text, re.M) == expected, name
        assert f'[INFO] [{name}]: process started' in written
    command = workspace.launch("[program(output='own_log')]")
    assert command.status == 1
    assert "output 'own_log' is not part of this stand-in" in command.output


def test_handlers_of_exit_and_shutdown_and_the_end_of_a_required_process(workspace):
    command = workspace.launch("""
        first = program('exit 4', name='first')
        second = program(name='second', on_exit=[LogInfo(msg='on_exit')])

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
    assert command.messages == ['first-1 4 program', 'on_exit', 'shutdown idle']
    command = workspace.launch(
        "[program('stay', name='other'), program('exit 4', name='main', on_exit=[Shutdown()])]")
    assert command.status == 0
    assert ('[INFO] [launch]: process[main-2] was required: shutting down launched system'
            in command.lines)
    assert command.programs[0].signals == ['SIGINT']


def test_a_timer_runs_its_actions_in_a_scope_of_the_handler_unless_there_is_a_shutdown(workspace):
    command = workspace.launch("""[
        program(on_exit=[TimerAction(period=0.01, cancel_on_shutdown=True, actions=[
            GroupAction([SetLaunchConfiguration('a', 'A'), LogInfo(msg=['in ', Config('a')]),
                         program('1 later', name='q', output='screen')])])]),
    ]""")
    assert (command.status, command.messages) == (0, ['in A'])
    assert command.output.count('[q-2] later') == 1
    command = workspace.launch("""[
        program(on_exit=[LogInfo(msg='waits'), TimerAction(
            period=1000.0, cancel_on_shutdown=True, actions=[LogInfo(msg='never')])]),
    ]""", when={'waits': send(signal.SIGINT)})
    assert (command.status, command.messages) == (0, ['waits'])


def test_signals_escalate_up_to_sigkill(workspace):
    command = workspace.launch("""[
        program('stay', 'ignore SIGINT', 'ignore SIGTERM', name='p', sigterm_timeout='0.02',
                sigkill_timeout=Config('k', default=0.03)),
    ]""", when={UP: send(signal.SIGINT)})
    assert command.status == 0
    assert command.programs[0].signals == ['SIGINT', 'SIGTERM', 'SIGKILL']
    *events, died = [line for line in command.lines if '[p-1]' in line][1:]
    assert events == [
        "[INFO] [p-1]: sending signal 'SIGINT' to process[p-1]",
        "[ERROR] [p-1]: process[p-1] failed to terminate '0.02' seconds after receiving 'SIGINT', "
        "escalating to 'SIGTERM'",
        "[INFO] [p-1]: sending signal 'SIGTERM' to process[p-1]",
        "[ERROR] [p-1]: process[p-1] failed to terminate '0.05' seconds after receiving "
        "'SIGTERM', escalating to 'SIGKILL'",
        "[INFO] [p-1]: sending signal 'SIGKILL' to process[p-1]",
    ]
    assert 'exit code -9' in died


def test_no_real_process_is_left_after_a_signal(workspace):
    command = workspace.launch("""[
        sh('exec sleep 1000', name='a', sigterm_timeout='600'),
        sh('trap "" INT TERM; echo up; exec sleep 1000', name='b', output='screen',
           sigterm_timeout='0.1', sigkill_timeout='0.1'),
    ]""", when={'[b-2] up': send(signal.SIGTERM)})
    assert command.status == 1
    pids = [int(line.rpartition('[')[2].rstrip(']')) for line in command.lines if UP in line]
    assert len(pids) == 2
    assert not any(map(psutil.pid_exists, pids))
    # Only the stubborn one gets a second signal.
    sent = re.findall(r"sending signal '(\w+)' to process\[([ab])", command.output)
    assert [number for number, name in sent if name == 'a'] == ['SIGINT']
    assert [number for number, name in sent if name == 'b'] == ['SIGINT', 'SIGTERM', 'SIGKILL']


def test_every_signal_to_the_launch_stops_its_processes_and_a_second_sigint_is_ignored(workspace):
    for number, status in ((signal.SIGINT, 0), (signal.SIGTERM, 1), (signal.SIGQUIT, 1),
                           (signal.SIGHUP, 1)):
        command = workspace.launch("[program('stay')]", when={UP: send(number)})
        assert (command.status, command.programs[0].signals) == (status, ['SIGINT']), number
    command = workspace.launch(
        "[program('stay', 'ignore SIGINT', sigterm_timeout='1000')]", when={
            UP: send(signal.SIGINT), "sending signal 'SIGINT'": send(signal.SIGINT),
            'user interrupted with ctrl-c (SIGINT) again, ignoring...':
                lambda: workspace.programs[0].end(-9)})
    assert (command.status, command.programs[0].signals) == (0, ['SIGINT'])


def test_an_error_stops_all_processes_and_has_a_traceback_with_debug(workspace):
    path = workspace.launch_file("""[
        program('stay'),
        RegisterEventHandler(OnProcessExit(on_exit=lambda event, context: 1 / 0)),
        program(),
    ]""")
    for options in ([], ['--debug']):
        command = workspace.run('launch', *options, path)
        assert command.status == 1
        assert ('Caught exception in launch (see debug for traceback): division by zero'
                in command.output)
        assert ('ZeroDivisionError' in command.output) == bool(options)
        assert command.programs[0].signals == ['SIGINT']

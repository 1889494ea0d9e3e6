"""The process of a node: malformed arguments, callbacks under load, the death of its parent."""

import _thread
import io
import itertools
import math
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import ANY, Mock, call

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from rclpy._rclpy_pybind11 import RCLError
from rclpy.clock import Clock, ClockType
from std_msgs.msg import Int64

from vdl_ros.common import children
from vdl_ros.ros import qos
from vdl_ros.ros.base_node import Diagnostics
from vdl_ros.ros.process import call_back, make_executor, run_node, set_up
from vdl_ros.tools import doctor


def test_malformed_ros_arguments_give_one_line_and_status_2(capsys):
    words = ['--ros-args', '-p', 'checkpoint:=']
    assert run_node('name', pytest.fail, pytest.fail, (), words) == 2
    out, err = capsys.readouterr()
    assert err.startswith('name: Failed to parse ROS arguments')
    assert (out, err.count('\n')) == ('', 1)
    with pytest.raises(SystemExit) as ended:
        doctor.main(words)
    assert ended.value.code == 2
    assert 'doctor: Failed to parse ROS arguments' in capsys.readouterr().err


def test_an_environment_in_which_no_node_starts_gives_a_line_for_each_fault(capsys, monkeypatch):
    monkeypatch.setenv('ROS_DOMAIN_ID', '232')
    monkeypatch.setenv('ROS_LOG_DIR', '/proc/none')
    assert run_node('name', pytest.fail, pytest.fail, (), []) == 2
    domain, logs = capsys.readouterr().err.splitlines()
    assert domain == 'name: ROS_DOMAIN_ID is 232; allowed: a whole number from 0 to 231'
    assert logs.startswith('name: no folder for the logs of ROS: /proc/none: No such file')


@pytest.mark.usefixtures('ros_domain')
def test_an_error_of_set_up_is_one_line_and_an_error_of_work_is_a_traceback(capsys):
    def fail(*args):
        raise OSError(28, 'full')

    def fail_in_set_up(node, stop):
        with set_up():
            fail()

    def make():
        return rclpy.create_node('node')

    for parts in ((fail, pytest.fail), (make, fail_in_set_up)):
        assert run_node('name', *parts, (), []) == 2
        assert capsys.readouterr().err == 'name: [Errno 28] full\n'

    def refuse():
        raise RCLError('no security\nlibraries, at a.cpp:1')

    assert run_node('name', refuse, pytest.fail, (), []) == 2
    assert capsys.readouterr().err == 'name: ROS: no security libraries\n'

    def shut_down(node, stop):
        rclpy.shutdown()  # as an environment may
        assert stop.is_set()

    def shut_down_and_publish(node, stop):
        shut_down(node, stop)
        node.create_publisher(Int64, 'number', 1)

    for work in (shut_down, shut_down_and_publish):
        assert run_node('name', make, work, (), []) == 2
        assert capsys.readouterr().err == (
            'name: an environment or a library has called rclpy.shutdown(), which ends this '
            'node: its own nodes need a context of their own\n')
    # Python prints the traceback and ends with status 1.
    with pytest.raises(OSError, match='full'):
        run_node('name', make, fail, (), [])


def test_diagnostics_have_a_level_a_message_and_values(peer):
    received = peer.listen('/diagnostics')
    peer.node.every = Mock()
    warning = ''
    diagnostics = Diagnostics(peer.node, lambda: (warning, {'lost': 2, 'lag': 0.5}))
    peer.until(diagnostics._publisher.get_subscription_count, 'the subscription')
    diagnostics._publish()
    warning = '2 trajectories lost'
    diagnostics._publish()
    peer.until(lambda: received and received[-1].status[0].message != 'ok', 'both')
    for found, level, message in ((received[0], DiagnosticStatus.OK, 'ok'),
                                  (received[-1], DiagnosticStatus.WARN, warning)):
        status, = found.status
        assert (status.level, status.name, status.message) == (level, '/peer', message)
        assert {each.key: each.value for each in status.values} == {'lost': '2', 'lag': '0.5'}
        assert found.header.stamp.sec > 0


def test_an_executor_leaves_native_code_its_signals(monkeypatch):
    """A Java machine of an environment uses SIGSEGV, which faulthandler would take from it."""
    found = Mock(is_enabled=lambda: False)
    monkeypatch.setattr('vdl_ros.ros.process.faulthandler', found)
    make_executor().shutdown()
    found.disable.assert_called_once()


def test_timers_run_on_time_while_more_messages_arrive_than_are_kept(node):
    newest, ticks = [], []
    node.create_subscription(
        Int64, 'policy', lambda message: newest.append(message.data), qos.LATCHED)
    # A steady clock, as in the comparison: the time of day may be set.
    node.create_timer(0.02, lambda: ticks.append(time.monotonic()),
                      clock=Clock(clock_type=ClockType.STEADY_TIME))
    publisher = node.create_publisher(Int64, 'policy', qos.LATCHED)
    executor = make_executor()
    executor.add_node(node)
    number = rounds = late = 0
    # The thread of its timers starts late on a busy machine.
    while not ticks:
        call_back(executor, 0.01)
    last = ticks[-1]
    # In rounds, not in seconds: the machine may stall, but no timer may wait for thousands of
    # messages.
    while rounds < 500 or len(ticks) < 20:
        for _ in range(5):
            publisher.publish(Int64(data=number))
            number += 1
        due = time.monotonic() - last >= 0.02
        call_back(executor, 0.0)
        rounds += 1
        late = late + 1 if due and ticks[-1] == last else 0
        assert late < 100, f'{len(ticks)} calls in {rounds} rounds'
        last = ticks[-1]
    end = time.monotonic() + 240.0
    while newest[-1] != number - 1:
        assert time.monotonic() < end, f'{newest[-1]} of {number - 1}'
        call_back(executor, 0.1)
    # Without events it waits for its timeout; events of the node's start may end some.
    waits = [time.monotonic()]
    for _ in range(5):
        call_back(executor, 0.01)
        waits.append(time.monotonic())
    assert max(end - start for start, end in itertools.pairwise(waits)) >= 0.008
    executor.remove_node(node)


@pytest.fixture
def ended(monkeypatch):
    """Return an event that is set where a process would end, with the status as ``status``."""
    event = threading.Event()

    def leave(status):
        event.status = status
        event.set()

    monkeypatch.setattr(children, '_WATCH_S', 0.001)
    monkeypatch.setattr(children, '_LEAVING_S', 0.001)
    monkeypatch.setattr(children, '_deadline', [math.inf])
    monkeypatch.setattr(children, '_own_marks', [])
    guardian = SimpleNamespace(
        environ=lambda: {children.MARK: children.GUARDIAN}, kill=pytest.fail)
    monkeypatch.setattr(children.psutil, 'Process', lambda: SimpleNamespace(
        children=lambda recursive: [guardian]))
    monkeypatch.setattr(children.os, '_exit', leave)
    monkeypatch.setattr(children, 'signal', Mock())
    monkeypatch.setattr(children, 'gc', Mock())
    return event


def test_an_environment_that_never_returns_is_named_and_ends_the_process(
        ended, capsys, monkeypatch):
    stop = threading.Event()
    monkeypatch.setattr(children, '_PATIENCE_S', 0.001)
    with children.ending_within(0.1, 'actor', stop):
        stop.set()
        assert ended.wait(300)
    assert ended.status == 1
    out, err = capsys.readouterr()
    place = r'test_an_environment_that_\w+\(\) \(test_process.py:\d+\)'
    assert re.match(f'actor: waits for {place}, and ends in 0 s without it\n', out)
    assert re.fullmatch(
        f'actor: ended 0.1 s after the signal to end, in the middle of {place}\n', err)


def test_a_close_that_never_returns_is_said_and_given_up(ended, capsys, monkeypatch):
    monkeypatch.setattr(children, '_LONG_S', 0.001)
    monkeypatch.setattr(children, '_AGAIN_S', 0.001)
    monkeypatch.setattr(children, '_CLOSING_S', 0.003)
    with children.closing('env_id: x: close()'):
        assert ended.wait(300)
    assert ended.status == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f'env_id: x: close() has not returned in {waited} s; it is given up after 0.003 s'
        for waited in (0.001, 0.002)]
    assert err == 'env_id: x: close() has not returned in 0.003 s: ended without it\n'


def test_a_close_after_the_signal_to_end_is_given_up_when_the_process_is(
        ended, capsys, monkeypatch):
    monkeypatch.setattr(children, '_LONG_S', 0.001)
    stop = threading.Event()
    stop.set()
    with children.ending_within(8.0, 'actor', stop):
        while children._block_deadline[0] == math.inf:
            time.sleep(0.001)
        with children.closing('close()'):
            while not (out := capsys.readouterr().out):
                time.sleep(0.001)
    assert re.search(r'it is given up after [78](.\d)? s', out)


def test_nothing_of_c_ends_a_process_whose_close_or_program_has_returned(ended, monkeypatch):
    clock, stop, armed = Mock(), threading.Event(), threading.Event()
    monkeypatch.setattr(children, 'faulthandler', clock)
    cancel = call.cancel_dump_traceback_later()
    later = call.dump_traceback_later(ANY, exit=True, file=2)
    with children.ending_within(60.0, 'actor', stop):
        with children.closing('env_id: x: close()'):
            assert clock.method_calls == [cancel, later]
        assert clock.method_calls == [cancel, later, cancel]
        clock.dump_traceback_later.side_effect = lambda *given, **more: armed.set()
        stop.set()
        assert armed.wait(300)
        with children.closing('env_id: x: close()'):
            pass
        assert clock.method_calls[3:] == [cancel, later] * 3
    assert clock.method_calls[9:][-1] == cancel


def test_a_close_of_native_code_that_holds_the_lock_of_python_ends_with_the_process():
    ended = subprocess.run([sys.executable, '-c', """
import ctypes
from vdl_ros.common import children
children._CLOSING_S, children._HELD_S = 0.0, 0.01
with children.closing('env_id: x: close()'):
    ctypes.PyDLL(None).sleep(600)
"""], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith('Timeout ')
    assert 'line 6 in <module>' in ended.stderr


def test_an_end_does_not_wait_for_a_thread_that_lacks_memory_at_its_birth(ended, monkeypatch):
    for module, name in ((threading, '_start_new_thread'), (threading, '_start_joinable_thread'),
                         (_thread, 'start_new_thread')):
        monkeypatch.setattr(module, name, lambda *_, **__: 1, raising=False)
    with pytest.raises(SystemExit), children.closing('env_id: x: close()'):
        children.run_program('actor', int)
    children.signal.alarm.assert_called_once()


def test_a_long_start_is_not_silent(monkeypatch):
    said, told = [], threading.Event()
    monkeypatch.setattr(children, '_LONG_S', 0.001)
    monkeypatch.setattr(children, '_NEWS_S', 0.001)
    monkeypatch.setattr(children, 'say', lambda text: (said.append(text), told.set()))
    with children.telling('learner: making the network'):
        assert told.wait(300)
    assert said[0] == 'learner: making the network for 0 s'


LOADING = """
import runpy, sys, threading
import vdl_ros.nodes
from vdl_ros.common import children
children.said = threading.Event()
children._LONG_S, children._NEWS_S = 0.001, 0.001
children.say = lambda text: (print(text), children.said.set())
vdl_ros.nodes.__path__.append(sys.argv[1])
runpy.run_path(sys.argv[1] + '/node', run_name='__main__')
"""


@pytest.mark.process
def test_a_node_that_loads_modules_for_long_is_not_silent(tmp_path):
    (tmp_path / 'slow.py').write_text(
        'from vdl_ros.common.children import said\nassert said.wait(60)\nmain = int')
    template = Path(__file__).resolve().parents[2] / 'cmake' / 'executable.in'
    (tmp_path / 'node').write_text(
        template.read_text().replace('@folder@', 'nodes').replace('@name@', 'slow'))
    found = subprocess.run([sys.executable, '-c', LOADING, str(tmp_path)], capture_output=True,
                           text=True, check=False)
    assert (found.returncode, found.stderr) == (0, '')
    assert found.stdout.startswith('slow: loads modules for 0 s\n')


@pytest.mark.parametrize(('fault', 'status'), [('thread', 0), ('atexit', 3), ('closed output', 0)])
def test_what_environments_leave_holds_up_no_process(
    ended, capsys, monkeypatch, tmp_path, fault, status,
):
    release, mark = threading.Event(), tmp_path / 'cleared' / 'mark'
    monkeypatch.setenv(children.OWN_MARK, str(mark))
    if fault == 'thread':
        threading.Thread(target=release.wait, name='physics').start()
    if fault == 'closed output':
        for name in ('stdout', 'stderr'):
            monkeypatch.setattr(sys, name, io.StringIO())
            getattr(sys, name).close()
    try:
        with pytest.raises(SystemExit) as exited:
            children.run_program('actor', lambda: status)
        assert ended.wait(300)
    finally:
        release.set()
    assert (exited.value.code, ended.status, mark.exists()) == (status, status, not status)
    # A late Ctrl-C.
    children.signal.signal.assert_any_call(children.signal.SIGINT, children.signal.SIG_IGN)
    name = {'thread': 'the thread physics',
            'atexit': 'a function of atexit or a destructor'}.get(fault)
    assert capsys.readouterr().err == (name is not None) * (
        f'actor: ended 0 s after its program, without waiting for {name}\n')


@pytest.mark.parametrize('environment', [
    {}, dict.fromkeys((children.MARK, children.OWN_MARK), '/proc/none')])
def test_a_training_without_a_launch_ends_what_its_environments_have_left_and_names_it(
        ended, capsys, monkeypatch, environment):
    monkeypatch.setattr(children.os, 'environ', environment)
    if environment:
        # The launch was killed.
        monkeypatch.setattr(children, 'PARENT_PID', 0)
    children.take_mark()
    monkeypatch.setattr(children, 'end_marked', {
        children.os.environ[children.MARK]: ['sleep', 'sh', 'sleep']}.get)
    with pytest.raises(SystemExit):
        children.run_program('serial', int)
    assert ended.wait(300)
    assert 'serial: left processes, which are ended now: 2 sleep, 1 sh' in (
        capsys.readouterr().err.splitlines())


def test_a_program_that_an_environment_starts_neither_finishes_nor_ends_the_learner(
        ended, monkeypatch, tmp_path):
    mark, marks = tmp_path / 'mark', []
    for name in (children.MARK, children.OWN_MARK):
        monkeypatch.setenv(name, str(mark))
    monkeypatch.setattr(children, 'end_left', marks.append)
    # Of the launch, and of the environment's shell: both were killed.
    monkeypatch.setattr(children, 'PARENT_PID', 0)

    def learn():
        with pytest.raises(SystemExit):
            children.run_program('sim_arm', int)
        assert ended.wait(300)
        ended.clear()
        assert (mark.exists(), marks) == (False, [])

    with pytest.raises(SystemExit):
        children.run_program('learner', learn)
    assert ended.wait(300)
    assert (mark.exists(), marks) == (True, [str(mark)])


def test_a_worker_that_imports_an_executable_starts_nothing():
    for template in (Path(__file__).parents[2] / 'cmake').glob('*.in'):
        # These are no modules.
        text = template.read_text().replace('@folder@', 'x').replace('@name@', 'x').replace(
            '@benchmark@', 'x')
        exec(text, {'__name__': '__mp_main__', '__file__': str(template)})


CHILD = """
import os
import time
import vdl_ros
parent = os.getppid()
print('starts', flush=True)
while os.getppid() == parent:  # as long as imports may take
    time.sleep(0.01)
from vdl_ros.ros.process import die_with_parent
try:
    die_with_parent()
    print('lives')
except KeyboardInterrupt:
    print('ends')
"""
PARENT = 'import subprocess, sys; subprocess.run([sys.executable, "-c", sys.argv[1]])'


@pytest.mark.process
def test_a_node_ends_if_its_parent_died_during_its_start():
    """A node ends with its launch, even if the launch is killed while the node starts."""
    parent = subprocess.Popen(
        [sys.executable, '-c', PARENT, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == 'starts\n'
    parent.kill()
    # Until end of file: then the child has ended too.
    assert parent.communicate(timeout=300)[0] == 'ends\n'

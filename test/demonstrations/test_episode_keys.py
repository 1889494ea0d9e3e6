"""The keys of the episode recorder, on a terminal and from a pipe."""

import os
import pty
import termios

import pytest

from vdl_ros.demonstrations.episode_keys import EpisodeKeys, Request


@pytest.fixture
def terminal():
    master, slave = pty.openpty()
    yield master, slave
    for each in (master, slave):
        os.close(each)


def read(keys):
    """Return the next request; the kernel may take a moment to pass a key on."""
    while (request := keys.read()) is None:
        pass
    return request


def test_keys_of_a_terminal_need_no_enter_and_the_terminal_is_restored(terminal):
    master, slave = terminal
    before = termios.tcgetattr(slave)
    with EpisodeKeys(slave) as keys:
        assert keys.read() is None
        os.write(master, b'sx')
        assert read(keys) == Request('start', 's')
        assert read(keys) == Request('', 'x')
        os.write(master, b't')
        assert read(keys) == Request('ask')
        # The text is a line of the terminal, which edits it.
        os.write(master, b'push  the rex\x7fd cube\n')
        assert read(keys) == Request('task', 'push the red cube')
        os.write(master, b'y')
        assert read(keys) == Request('success', 'y')
    assert termios.tcgetattr(slave) == before


def test_lines_of_a_pipe_are_keys_and_its_end_quits():
    source, sink = os.pipe()
    with EpisodeKeys(source) as keys:
        os.write(sink, b's\nt push the red cube\n\nsuccess\nhello\nn')
        assert [keys.read() for _ in range(5)] == [
            Request('start', 's'), Request('task', 'push the red cube'), None,
            Request('success', 'success'), Request('', 'hello')]
        assert keys.read() is None, 'the line is not complete'
        os.close(sink)
        assert [keys.read() for _ in range(3)] == [
            Request('failure', 'n'), Request('quit'), Request('quit')]
    os.close(source)

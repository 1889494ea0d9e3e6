"""A terminal in raw mode is restored, however its use ends."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import termios

import pytest

from vdl_ros.arm.teleop.keyboard import Terminal


@pytest.fixture
def line():
    """Return both ends of a terminal: the person's, the program's."""
    master, slave = pty.openpty()
    yield master, slave
    for descriptor in (master, slave):
        with contextlib.suppress(OSError):  # closed by the test
            os.close(descriptor)


def written(line):
    """Return what was written to the terminal; it arrives a moment later, but in order."""
    master, slave = line
    os.write(slave, b'#end')
    found = b''
    while not found.endswith(b'#end'):
        found += os.read(master, 4096)
    return found[:-4]


def test_terminal_is_restored_after_success_and_error(line):
    master, slave = line
    before = termios.tcgetattr(slave)
    os.write(master, b'typed ahead\n')
    assert select.select([slave], [], [], 60.0)[0]
    with Terminal(slave, slave):
        assert not select.select([slave], [], [], 0.0)[0], 'what was typed before is dropped'
        assert not termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    assert termios.tcgetattr(slave) == before
    with contextlib.suppress(KeyError), Terminal(slave, slave) as terminal:
        terminal.enable_reports(11)
        os.write(master, b'left over')
        assert select.select([slave], [], [], 60.0)[0]
        raise KeyError('mistake')
    assert termios.tcgetattr(slave) == before
    text = written(line)
    assert text.count(b'\x1b[?2004h') == text.count(b'\x1b[?2004l') == 2
    assert text.count(b'\x1b[>11u') == text.count(b'\x1b[<u') == 1
    assert text.count(b'\x1b[?1004h') == text.count(b'\x1b[?1004l') == 1
    assert text.index(b'\x1b[>11u') < text.index(b'\x1b[<u')
    termios.tcsetattr(slave, termios.TCSANOW, [*before[:3], before[3] & ~termios.ICANON,
                                               *before[4:]])
    assert not select.select([slave], [], [], 0.0)[0], 'nothing is left for the shell'


def test_keys_are_read_singly_including_control_keys(line):
    master, slave = line
    with Terminal(slave, slave) as terminal:
        assert terminal.read(0.0) == b''
        for key in (b'a', b'\x03', b'\x1a', b'\x13', b'\r', b'\xff'):
            os.write(master, key)
            assert terminal.read(60.0) == key
        os.close(master)
        assert terminal.read(60.0) is None, 'hung up'
        terminal.log('disconnected')


def test_status_line_is_redrawn_and_clipped(line):
    _, slave = line
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 20, 0, 0))
    with Terminal(slave, slave) as terminal:
        written(line)
        terminal.set_status('off')
        terminal.set_status('off')
        assert written(line) == b'\r\x1b[Koff'
        terminal.set_status('base +1 ' * 10)
        assert written(line) == b'\r\x1b[K' + (b'base +1 ' * 10)[:19]
        terminal.log('one\ntwo')
        assert written(line) == b'\r\x1b[Kone\r\ntwo\r\n' + (b'base +1 ' * 10)[:19]


def test_blocked_terminal_does_not_block_the_program(line):
    master, slave = line
    with Terminal(slave, slave) as terminal:
        for number in range(1000):
            if not select.select([], [slave], [], 0)[1]:
                break
            terminal.set_status('x' * 60 + str(number))
        assert not select.select([], [slave], [], 0)[1]
        terminal.set_status('not seen')
        # Room for a part of a line.
        os.read(master, 400)
        terminal.log('x' * 5000)

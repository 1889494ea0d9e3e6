"""A terminal is as before, however its use ends."""

import fcntl
import os
import pty
import select
import struct
import termios

import pytest

from vdl_ros.arm.teleop.terminal import Terminal


@pytest.fixture
def line():
    """Return both ends of a terminal: the person's, the program's."""
    master, slave = pty.openpty()
    yield master, slave
    for descriptor in (master, slave):
        try:
            os.close(descriptor)
        except OSError:
            continue


def written(master):
    found = b''
    while select.select([master], [], [], 0.1)[0]:
        found += os.read(master, 4096)
    return found


def test_it_is_restored_on_every_way_out(line):
    master, slave = line
    before = termios.tcgetattr(slave)
    with Terminal(slave, slave):
        assert not termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
    assert termios.tcgetattr(slave) == before

    def mistake():
        with Terminal(slave, slave) as terminal:
            terminal.report(11)
            os.write(master, b'left over')
            raise KeyError('mistake')

    with pytest.raises(KeyError):
        mistake()
    assert termios.tcgetattr(slave) == before
    text = written(master)
    assert text.count(b'\x1b[?2004h') == text.count(b'\x1b[?2004l') == 2
    assert text.count(b'\x1b[>11u') == text.count(b'\x1b[<u') == 1
    assert text.count(b'\x1b[?1004h') == text.count(b'\x1b[?1004l') == 1
    assert text.index(b'\x1b[>11u') < text.index(b'\x1b[<u')
    termios.tcsetattr(slave, termios.TCSANOW, [*before[:3], before[3] & ~termios.ICANON,
                                               *before[4:]])
    assert not select.select([slave], [], [], 0.0)[0], 'nothing is left for the shell'


def test_keys_come_one_by_one_control_keys_too(line):
    master, slave = line
    with Terminal(slave, slave) as terminal:
        assert terminal.read(0.0) == b''
        for key in (b'a', b'\x03', b'\x1a', b'\x13', b'\r', b'\xff'):
            os.write(master, key)
            assert terminal.read(1.0) == key
        os.close(master)
        assert terminal.read(1.0) is None, 'hung up'
        terminal.say('nobody hears')


def test_one_line_is_drawn_over_and_fits(line):
    master, slave = line
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 20, 0, 0))
    with Terminal(slave, slave) as terminal:
        written(master)
        terminal.show('off')
        terminal.show('off')
        assert written(master) == b'\r\x1b[Koff'
        terminal.show('base +1 ' * 10)
        assert written(master) == b'\r\x1b[K' + (b'base +1 ' * 10)[:19]
        terminal.say('one\ntwo')
        assert written(master) == b'\r\x1b[Kone\r\ntwo\r\n' + (b'base +1 ' * 10)[:19]


def test_a_terminal_that_takes_nothing_does_not_hold_it(line):
    _, slave = line
    with Terminal(slave, slave) as terminal:
        for number in range(1000):
            if not select.select([], [slave], [], 0)[1]:
                break
            terminal.show('x' * 60 + str(number))
        assert not select.select([], [slave], [], 0)[1]
        terminal.show('not seen')


def test_what_is_no_terminal_is_refused():
    read, write = os.pipe()
    with pytest.raises(ValueError, match='standard input is no terminal'):
        Terminal(read, write)
    os.close(read)
    os.close(write)

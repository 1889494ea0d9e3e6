"""TensorBoard is served to this machine only; what prevents that is one line."""

import socket
import sys

import pytest

from vdl_ros.tools import tensorboard


@pytest.fixture(autouse=True)
def own_priority(monkeypatch):
    """Keep signals and priority of the tests."""
    monkeypatch.setattr(tensorboard, 'lower_priority', lambda: None)


def test_a_missing_tensorboard_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'tensorboard', None)
    assert tensorboard.main(['runs']) == 2
    assert capsys.readouterr().err == 'tensorboard: not installed: pip install tensorboard\n'


def test_a_port_in_use_is_one_line(capsys, tmp_path):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        assert tensorboard.main([str(tmp_path), '--port', str(port)]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1
    assert error[0].startswith(f'tensorboard: 127.0.0.1:{port} cannot be used: ')


def test_only_names_of_this_machine_are_answered():
    """A foreign page may give this machine a name of its own (DNS rebinding)."""
    def status(host):
        statuses = []
        application = tensorboard.own_host(lambda request, start: start('200 OK', []))
        application({'HTTP_HOST': host, 'SERVER_PORT': '6006'},
                    lambda line, headers: statuses.append(line))
        return statuses

    for host in ('127.0.0.1:6006', 'LocalHost:6006'):
        assert status(host) == ['200 OK'], host
    for host in ('evil.example:6006', 'evil.example', '127.0.0.1.evil.example:6006', ''):
        assert status(host) == ['403 Forbidden'], host

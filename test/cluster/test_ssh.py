"""Hosts that cannot be used: one line each, and nothing is started. With a real sshd."""

import socket

import pytest
from network_hosts import Sshd, key, ssh_config

from vdl_ros.tools import cluster


@pytest.fixture
def server(launch, tmp_path):
    """Return an sshd on this machine that accepts the key of the test."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    found = Sshd(tmp_path / 'server', '127.0.0.1', port, key(tmp_path / 'id'))
    process = launch(*found.command())
    process.wait_for(lambda: 'listening' in process.output, 'sshd')
    return found


@pytest.fixture
def start(server, tmp_path, capsys):
    """Return a function that starts a cluster on that server, and returns status and errors."""
    def run(port=server.port, user_key=tmp_path / 'id', known=(server,), setup='/dev/null'):
        config = ssh_config(tmp_path / 'ssh_config', user_key, known)
        table = tmp_path / 'lab.csv'
        table.write_text(f'job,host,port\nlearner,127.0.0.1,{port}\nactor,127.0.0.1,{port}\n')
        status = cluster.main(['start', f'hosts:={table}', f'ssh_config:={config}',
                               f'setup:={setup}'])
        return status, capsys.readouterr().err.replace(f'127.0.0.1:{port}', 'HOST')
    return run


def test_a_host_whose_key_has_changed_is_refused(start, server, tmp_path):
    other = Sshd(tmp_path / 'other', server.address, server.port, tmp_path / 'id')
    status, errors = start(known=[other])
    assert status == 2
    assert errors.count('\n') == 1
    assert errors.startswith('cluster: HOST: its host key has changed: if that is right, forget '
                             f"the old one by ssh-keygen -R '[127.0.0.1]:{server.port}'")


def test_a_host_whose_key_is_not_known_is_refused(start):
    status, errors = start(known=[])
    assert status == 2
    assert errors == ('cluster: HOST: its host key is not known: connect once with ssh and '
                      'compare its fingerprint\n')


def test_a_host_that_does_not_answer_is_one_line(start):
    with socket.socket() as unused:
        unused.bind(('127.0.0.1', 0))  # and does not listen
        status, errors = start(port=unused.getsockname()[1])
    assert status == 2
    assert errors.startswith('cluster: HOST does not answer: ssh: connect to host')
    assert errors.endswith('Connection refused\n')
    assert errors.count('\n') == 1


def test_a_key_that_the_host_refuses_is_one_line(start, tmp_path):
    status, errors = start(user_key=key(tmp_path / 'wrong'))
    assert status == 2
    assert errors.startswith('cluster: HOST: it refuses the keys of this user')
    assert errors.count('\n') == 1


def test_a_missing_setup_file_is_one_line(start):
    status, errors = start(setup='/nowhere/setup.bash')
    assert status == 2
    assert errors.startswith('cluster: HOST: vdl_ros cannot be run with /nowhere/setup.bash: ')
    assert 'No such file or directory' in errors
    assert errors.count('\n') == 1


def test_a_bad_setting_is_refused_before_any_host_is_reached(capsys, tmp_path):
    table = tmp_path / 'lab.csv'
    table.write_text('job,host\nlearner,localhost\nactor,localhost\n')
    for words, line in (
            (['discount:=1.5'], 'discount: 1.5 is not allowed'),
            (['num_actors:=2'], 'num_actors: not allowed: the hosts file sets it'),
            (['lerning_rate:=1'], "lerning_rate: no such setting; did you mean 'learning_rate'?"),
            (['name:=a/b'], "name: 'a/b' is not allowed"),
            (['video:=true', 'name:=a b'], "name: 'a b' is not allowed")):
        assert cluster.main([f'hosts:={table}', *words]) == 2
        assert line in capsys.readouterr().err
    assert cluster.main(['strat']) == 2
    assert "did you mean 'start'?" in capsys.readouterr().err
    assert cluster.main(['status']) == 2
    assert 'no cluster was started here' in capsys.readouterr().err

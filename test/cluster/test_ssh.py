"""Hosts that cannot be used: one line each, and nothing is started. With a real sshd."""

import socket

import pytest
from network_hosts import Sshd, key, ssh_config

from vdl_ros.tools import cluster


@pytest.fixture
def start(launch, tmp_path, capsys):
    """Return a function that starts a cluster on an sshd of this machine: its line of errors."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        own = free.getsockname()[1]
    server = Sshd(tmp_path / 'server', '127.0.0.1', own, key(tmp_path / 'id'))
    process = launch(*server.command())
    process.wait_for(lambda: 'listening' in process.output, 'sshd')

    def run(port=own, user_key=tmp_path / 'id', host_key=server.host_key, setup='/dev/null'):
        server.host_key = host_key
        config = ssh_config(tmp_path / 'ssh_config', user_key, [server] if host_key else [])
        table = tmp_path / 'lab.csv'
        table.write_text(f'job,host,port\nlearner,127.0.0.1,{port}\nactor,127.0.0.1,{port}\n')
        assert cluster.main(['start', f'hosts:={table}', f'ssh_config:={config}',
                             f'setup:={setup}']) == 2
        found = capsys.readouterr().err.replace(f'127.0.0.1:{port}', 'HOST')
        assert found.count('\n') == 1, found
        return found.replace(f':{port}', ':PORT')
    return run


@pytest.mark.slow
def test_a_host_whose_key_has_changed_or_that_does_not_answer_is_refused(start, tmp_path):
    assert start(host_key=tmp_path / 'id').startswith(
        'cluster: HOST: its host key has changed: if that is right, forget the old one by '
        "ssh-keygen -R '[127.0.0.1]:PORT'")
    with socket.socket() as unused:
        unused.bind(('127.0.0.1', 0))  # and does not listen
        found = start(port=unused.getsockname()[1])
    assert found.startswith('cluster: HOST does not answer: ssh: connect to host')
    assert found.endswith('Connection refused\n')


@pytest.mark.slow
def test_a_host_of_an_unknown_key_without_rights_or_without_the_package_is_refused(
        start, tmp_path):
    assert start(host_key=None) == ('cluster: HOST: its host key is not known: connect once with '
                                    'ssh and compare its fingerprint\n')
    assert start(user_key=tmp_path / 'server/host_key').startswith(
        'cluster: HOST: it refuses the keys of this user')
    found = start(setup='/nowhere/setup.bash')
    assert found.startswith('cluster: HOST: vdl_ros cannot be run with /nowhere/setup.bash: ')
    assert 'No such file or directory' in found


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

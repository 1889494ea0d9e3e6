"""Hosts that cannot be used: one line each, and nothing is started. With a real sshd."""

import socket

from network_hosts import Sshd, key, ssh_config

from vdl_ros.tools import cluster


def test_a_host_that_cannot_be_used_is_one_line_and_nothing_starts(launch, tmp_path, capsys):
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    server = Sshd(tmp_path / 'server', '127.0.0.1', port, key(tmp_path / 'id'))
    other = Sshd(tmp_path / 'other', '127.0.0.1', port, tmp_path / 'id')
    process = launch(*server.command())
    process.wait_for(lambda: 'listening' in process.output, 'sshd')

    def errors(port=port, user_key=tmp_path / 'id', known=server, setup='/dev/null'):
        config = ssh_config(tmp_path / 'ssh_config', user_key, [known] if known else [])
        table = tmp_path / 'lab.csv'
        table.write_text(f'job,host,port\nlearner,127.0.0.1,{port}\nactor,127.0.0.1,{port}\n')
        assert cluster.main(['start', f'hosts:={table}', f'ssh_config:={config}',
                             f'setup:={setup}']) == 2
        found = capsys.readouterr().err.replace(f'127.0.0.1:{port}', 'HOST')
        assert found.count('\n') == 1, found
        return found

    assert errors(known=other).startswith(
        'cluster: HOST: its host key has changed: if that is right, forget the old one by '
        f"ssh-keygen -R '[127.0.0.1]:{port}'")
    assert errors(known=None) == ('cluster: HOST: its host key is not known: connect once with '
                                  'ssh and compare its fingerprint\n')
    with socket.socket() as unused:
        unused.bind(('127.0.0.1', 0))  # and does not listen
        found = errors(port=unused.getsockname()[1])
    assert found.startswith('cluster: HOST does not answer: ssh: connect to host')
    assert found.endswith('Connection refused\n')
    # The key of another.
    assert errors(user_key=other.host_key).startswith(
        'cluster: HOST: it refuses the keys of this user')
    found = errors(setup='/nowhere/setup.bash')
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

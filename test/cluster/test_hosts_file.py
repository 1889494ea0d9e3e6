"""Hosts of a cluster: their file, and those that cannot be used. With a real sshd."""

import socket
from pathlib import Path

import pytest
from network_hosts import Sshd, key, ssh_config

from vdl_ros.cluster.plan import Row, read_hosts
from vdl_ros.common.settings import SettingError
from vdl_ros.tools import cluster

ROOT = Path(__file__).resolve().parents[2]
BAD = (
    ('job,host,ssh_password\n', "line 1: column 'ssh_password' is not allowed: ssh uses keys"),
    ('job,host,usr\n', "line 1: column 'usr' is not allowed: job, host, port, devices, user, "
     "setup; did you mean 'user'?"),
    ('job,port\n', "line 1: column 'host' is missing"),
    ('job,host,host\n', "line 1: column 'host' is there twice"),
    ('job,host\n# comment\nlerner,10.0.0.1\n', "line 3: job: 'lerner' is not allowed: one of "
     "'learner', 'actor'"),
    # What ssh or a shell would read.
    ('job,host\nlearner,-oProxyCommand=x\n', "host: '-oProxyCommand=x' is not"),
    ('job,host\nlearner,a$(id)\n', "host: 'a$(id)' is not allowed: a name or an IPv4"),
    ('job,host,user\nlearner,a,-l\n', "user: '-l' is not allowed"),
    ('job,host,port\nlearner,a,70000\n', "port: '70000' is not allowed: a whole number"),
    ('job,host,devices\nlearner,a,0 1\n', "devices: '0 1' is not allowed"),
    ('job,host\nlearner,a,b\n', 'line 2 has 3 cells: at most 2'),
    ('job,host\nlearner,"a\n', 'line 2 is not CSV'),
    ('job,host\nactor,a\n', "0 rows with job 'learner' are not allowed: 1 to 64"),
    ('job,host\nlearner,a\nlearner,b\nactor,c\n', '1 actors are not allowed: at least one for '
     'each of 2 learners'),
    ('# nothing\n', 'is empty: a line with the columns job, host'),
    ('job,host\n\udcff', 'cannot be read: it is no text'))


def test_a_bad_file_is_one_line_with_its_place(tmp_path):
    path = tmp_path / 'hosts.csv'
    for text, line in BAD:
        path.write_bytes(text.encode(errors='surrogateescape'))
        with pytest.raises(SettingError) as error:
            read_hosts(path)
        assert line in str(error.value)
        assert str(error.value).startswith(f'hosts: {path}')
        assert '\n' not in str(error.value)


def test_rows_have_their_values_and_defaults(tmp_path):
    path = tmp_path / 'hosts.csv'
    path.write_text('# lab\nhost,job,port,devices,user,setup\n\n'
                    'gpu1,learner,2222,0;1,anna,/opt/my setup.bash\ngpu2,actor\nc,actor,,none\n')
    assert read_hosts(path) == [
        Row('learner', 'gpu1', 2222, '0;1', 'anna', '/opt/my setup.bash'), Row('actor', 'gpu2'),
        Row('actor', 'c', devices='none')]
    assert [row.visible_devices for row in read_hosts(path)] == ['0,1', None, '']
    # The example has two learners and three actors on this host.
    rows = read_hosts(ROOT / 'config/cluster/localhost.csv')
    assert [row.job for row in rows] == ['learner'] * 2 + ['actor'] * 3
    assert {row.host for row in rows} == {'localhost'}


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
    assert cluster.main([f'hosts:={tmp_path}/none.csv']) == 2
    assert f'{tmp_path}/none.csv' in capsys.readouterr().err
    assert cluster.main(['strat']) == 2
    assert "did you mean 'start'?" in capsys.readouterr().err
    assert cluster.main(['status']) == 2
    assert 'no cluster was started here' in capsys.readouterr().err

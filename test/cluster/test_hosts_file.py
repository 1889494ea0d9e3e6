"""Hosts files: what they mean, and what is refused in one line."""

from pathlib import Path

import pytest

from vdl_ros.cluster.hosts_file import Row, read_hosts
from vdl_ros.common.settings import SettingError

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

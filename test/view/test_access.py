"""Only the view's own Host and Origin, with its token, open it."""

import re

from vdl_ros.view.page_server import Access, AccessError

PORT = 8080
OWN, EVIL = '127.0.0.1:8080', 'evil.example:8080'
# The address of a server, and the Host of a browser: allowed as its own, or refused as a foreign
# one, as with DNS rebinding.
HOSTS = {
    '127.0.0.1': (
        [OWN, 'localhost:8080', 'LocalHost:8080'],
        ['', EVIL, '127.0.0.1:80', '127.0.0.1', '127.0.0.1.evil.example:8080',
         '192.0.2.7:8080']),
    'localhost': (['[::1]:8080'], [EVIL]),
    '::1': (['[::1]:8080'], [EVIL]),
    '127.0.0.2': (['127.0.0.2:8080'], [EVIL]),
    '192.0.2.7': (['192.0.2.7:8080'], ['localhost:8080', '192.0.2.8:8080']),
    'robot': (['robot:8080'], ['robot.evil.example:8080']),
    '0.0.0.0': (['192.0.2.7:8080', 'localhost:8080'], [EVIL, '192.0.2.7:80']),
    '::': (['[2001:db8::7]:8080'], [EVIL])}
# What Origin a websocket to 127.0.0.1:8080 may not have; a page may also have none.
FOREIGN_ORIGINS = [
    ['http://evil.example'], ['null'], [''], ['http://127.0.0.1:9090'],
    ['https://127.0.0.1:8080'], ['http://localhost:8080'], ['http://127.0.0.1:8080/'],
    ['http://127.0.0.1:8080', 'http://127.0.0.1:8080']]


def check(access, path='', hosts=(OWN,), origins=None, websocket=True, port=PORT):
    if origins is None:
        origins = [f'http://{hosts[0]}'] if websocket else []
    return access.check(path or f'/{access.token}', hosts, origins, port=port, websocket=websocket)


def refused(match, access, **request):
    try:
        line = f'not refused: {check(access, **request)}'
    except AccessError as error:
        line = str(error)
    assert re.search(match, line), request
    assert access.token not in line
    assert line.isprintable()
    assert len(line) < 150


def test_the_address_starts_with_host_and_port_and_has_a_new_token():
    one, other = Access('127.0.0.1'), Access('127.0.0.1')
    assert one.url(PORT) == f'http://127.0.0.1:8080/{one.token}/'
    assert one.token != other.token
    assert len(one.token) >= 20
    assert Access('::1').url(PORT).startswith('http://[::1]:8080/')


def test_only_own_names_are_allowed():
    for host, (own, foreign) in HOSTS.items():
        access = Access(host)
        for given in own:
            assert check(access, hosts=[given]) == '/', (host, given)
        for given in foreign:
            refused('Host .* is not allowed: ', access, hosts=[given])
    access = Access('127.0.0.1')
    for hosts in ([], [OWN, OWN], ['\x1b[2J' + 'x' * 5000]):
        refused('Host .* is not allowed: ', access, hosts=hosts, origins=['http://x'])
    # Browsers leave out port 80.
    for given in ('127.0.0.1', '127.0.0.1:80', 'localhost', '[::1]'):
        assert check(access, hosts=[given], port=80) == '/', given
    refused('Host', access, hosts=['evil.example'], port=80)


def test_websocket_or_page_of_another_origin_is_refused():
    access = Access('127.0.0.1')
    for origins in FOREIGN_ORIGINS:
        for websocket in (True, False):
            refused('Origin .* is not allowed: http://127.0.0.1:8080', access, origins=origins,
                    websocket=websocket)
    refused('Origin', access, origins=[])
    assert check(access, websocket=False) == '/'
    assert check(access, websocket=False, origins=['http://127.0.0.1:8080']) == '/'


def test_the_token_is_the_first_part_of_the_path():
    access = Access('127.0.0.1')
    for rest, path in (('', '/'), ('/', '/'), ('?a=b', '/?a=b'), ('/assets/x?y', '/assets/x?y')):
        assert check(access, f'/{access.token}{rest}') == path
    for path in ('/', '/?', '//', f'//{access.token}', f'/{access.token[:-1]}',
                 f'/{access.token}x', f'/x/{access.token}', f'/?{access.token}', '/\udcff'):
        refused('token', access, path=path)

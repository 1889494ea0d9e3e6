"""Only the view's own Host and Origin, with its token, open it."""

import pytest

from vdl_ros.view.access import Access, AccessError

PORT = 8080


def check(access, path='', hosts=('127.0.0.1:8080',), origins=None, websocket=True, port=PORT):
    if origins is None:
        origins = [f'http://{hosts[0]}'] if websocket else []
    return access.check(path or f'/{access.token}', hosts, origins, port=port,
                        websocket=websocket)


def test_the_address_starts_with_host_and_port_and_has_a_new_token():
    one, other = Access('127.0.0.1'), Access('127.0.0.1')
    assert one.url(PORT) == f'http://127.0.0.1:8080/{one.token}/'
    assert one.token != other.token
    assert len(one.token) >= 20
    assert Access('::1').url(PORT).startswith('http://[::1]:8080/')


@pytest.mark.parametrize(('host', 'given'), [
    ('127.0.0.1', '127.0.0.1:8080'), ('127.0.0.1', 'localhost:8080'),
    ('127.0.0.1', 'LocalHost:8080'), ('localhost', '[::1]:8080'), ('::1', '[::1]:8080'),
    ('127.0.0.2', '127.0.0.2:8080'), ('192.0.2.7', '192.0.2.7:8080'), ('robot', 'robot:8080'),
    ('0.0.0.0', '192.0.2.7:8080'), ('0.0.0.0', 'localhost:8080'), ('::', '[2001:db8::7]:8080')])
def test_its_own_names_are_allowed(host, given):
    access = Access(host)
    for websocket in (True, False):
        assert check(access, hosts=[given], websocket=websocket) == '/'


@pytest.mark.parametrize(('host', 'given'), [
    ('127.0.0.1', []), ('127.0.0.1', ['127.0.0.1:8080', '127.0.0.1:8080']),
    ('127.0.0.1', ['']), ('127.0.0.1', ['evil.example:8080']), ('127.0.0.1', ['127.0.0.1:80']),
    ('127.0.0.1', ['127.0.0.1']), ('127.0.0.1', ['127.0.0.1.evil.example:8080']),
    ('127.0.0.1', ['192.0.2.7:8080']), ('192.0.2.7', ['localhost:8080']),
    ('192.0.2.7', ['192.0.2.8:8080']), ('0.0.0.0', ['evil.example:8080']),
    ('0.0.0.0', ['192.0.2.7:80']), ('robot', ['robot.evil.example:8080'])])
def test_foreign_names_are_refused_as_with_dns_rebinding(host, given):
    with pytest.raises(AccessError, match='Host .* is not allowed: '):
        check(Access(host), hosts=given, origins=[f'http://{each}' for each in given[:1]])


@pytest.mark.parametrize('origins', [
    [], ['http://evil.example'], ['null'], [''], ['http://127.0.0.1:9090'],
    ['https://127.0.0.1:8080'], ['http://localhost:8080'], ['http://127.0.0.1:8080/'],
    ['http://127.0.0.1:8080', 'http://127.0.0.1:8080']])
def test_websocket_of_another_origin_is_refused(origins):
    with pytest.raises(AccessError, match='Origin .* is not allowed: http://127.0.0.1:8080'):
        check(Access('127.0.0.1'), origins=origins)


def test_page_needs_no_origin_but_no_foreign_one_either():
    access = Access('127.0.0.1')
    assert check(access, websocket=False) == '/'
    assert check(access, websocket=False, origins=['http://127.0.0.1:8080']) == '/'
    with pytest.raises(AccessError, match='Origin'):
        check(access, websocket=False, origins=['http://evil.example'])


def test_the_token_is_the_first_part_of_the_path():
    access = Access('127.0.0.1')
    for rest, path in (('', '/'), ('/', '/'), ('?a=b', '/?a=b'), ('/assets/x?y', '/assets/x?y')):
        assert check(access, f'/{access.token}{rest}') == path
    for path in ('/', '/?', '//', f'//{access.token}', f'/{access.token[:-1]}',
                 f'/{access.token}x', f'/x/{access.token}', f'/?{access.token}', '/\udcff'):
        with pytest.raises(AccessError, match='token') as refusal:
            check(access, path)
        assert access.token not in str(refusal.value)


def test_port_80_is_left_out_by_browsers():
    access = Access('127.0.0.1')
    for host in ('127.0.0.1', '127.0.0.1:80', 'localhost', '[::1]'):
        assert check(access, hosts=[host], port=80) == '/'
    with pytest.raises(AccessError, match='Host'):
        check(access, hosts=['evil.example'], port=80)


def test_a_long_foreign_text_is_cut_and_escaped():
    with pytest.raises(AccessError) as refusal:
        check(Access('127.0.0.1'), hosts=['\x1b[2J' + 'x' * 5000])
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 150

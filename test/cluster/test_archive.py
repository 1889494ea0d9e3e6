"""What a host sends is unpacked into one folder, whatever it claims to be."""

import io
import tarfile

import pytest

from vdl_ros.cluster.control import unpack


def archive(*members):
    """Return an archive of (name, type, content or target)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w:') as found:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname = kind, 0o4777, content.decode()
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            found.addfile(info, io.BytesIO(content))
    file.seek(0)
    return tarfile.open(fileobj=file, mode='r:')


def test_files_and_folders_are_written_without_their_rights(tmp_path):
    with archive(('logs', tarfile.DIRTYPE, b''), ('logs/a.log', tarfile.REGTYPE, b'words'),
                 ('run/curve.csv', tarfile.REGTYPE, b'1,2')) as found:
        unpack(found, tmp_path)
    assert (tmp_path / 'logs/a.log').read_bytes() == b'words'
    assert (tmp_path / 'run/curve.csv').read_bytes() == b'1,2'
    assert not (tmp_path / 'logs/a.log').stat().st_mode & 0o4111


def test_paths_that_lead_out_links_and_devices_are_refused(tmp_path):
    home = tmp_path / 'home'
    home.mkdir()
    for member in (
            ('../outside', tarfile.REGTYPE, b'x'), ('a/../../outside', tarfile.REGTYPE, b'x'),
            ('/outside', tarfile.REGTYPE, b'x'), ('link', tarfile.SYMTYPE, b'/etc'),
            ('link', tarfile.LNKTYPE, b'../outside'), ('pipe', tarfile.FIFOTYPE, b''),
            ('disk', tarfile.BLKTYPE, b''), ('holes', tarfile.GNUTYPE_SPARSE, b'')):
        with archive(member) as found, pytest.raises(
                tarfile.TarError, match='is no file of this'):
            unpack(found, home)
        assert list(home.iterdir()) == [], member
        assert [each.name for each in tmp_path.iterdir()] == ['home'], member

"""Files written atomically are whole or unchanged; progress.csv survives crashes; data files."""

import contextlib
import resource
from pathlib import Path

import pytest

from vdl_ros.common import files
from vdl_ros.common.files import (
    InUseError,
    ProgressTable,
    absolute_paths,
    atomic_file,
    checkpoint_file,
    find_resource,
    is_unused,
    json_lines,
    lock_folder,
    new_folder,
    write_text,
)


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / 'summary.json'
    write_text(path, 'old')
    with contextlib.suppress(KeyError), atomic_file(path) as partial:
        partial.write_text('ne')
        raise KeyError
    # Errors of a full disk name no file.
    with pytest.raises(OSError, match=str(path)), atomic_file(path):
        raise OSError(28, 'No space left on device')
    assert path.read_text() == 'old'
    assert list(tmp_path.iterdir()) == [path]
    # What somebody else left there is not written through.
    path.with_name('summary.json.partial').symlink_to(tmp_path / 'other')
    write_text(path, 'new')
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_has_one_writer_at_a_time(tmp_path):
    one, two = tmp_path / 'one', tmp_path / 'two'
    with lock_folder(one):
        with pytest.raises(InUseError, match=f'^{one} is in use by another process; '):
            lock_folder(one)
        assert is_unused(one)
    lock_folder(one).close()
    with new_folder(two) as new:
        with pytest.raises(InUseError), new_folder(two):
            pass
        (new / 'x').touch()
    assert [each.name for each in two.iterdir()] == ['x']
    assert not list(tmp_path.glob('.*'))


def test_innermost_lists_and_mappings_of_json_have_one_line():
    text = json_lines({'at': [{'x': 0.5, 3: []}, {}], 'of': [1, 'a "b"'], 'no': []})
    assert text.splitlines() == [
        '{', ' "at": [', '  {', '   "x": 0.5,', '   "3": []', '  },', '  {}', ' ],',
        ' "of": [1, "a \\"b\\""],', ' "no": []', '}']


def test_truncate_keeps_the_rows_up_to_a_step_as_they_were_written(tmp_path):
    path = tmp_path / 'progress.csv'
    table = ProgressTable(path, ('step', 'loss'))
    assert table.rows() == []
    table.truncate(0)
    for step, loss in ((1, '0.50'), (2, 'nan'), (3, '0.25')):
        table.append({'step': step, 'loss': loss, 'other': 1})
    table.truncate(2)
    assert path.read_text().splitlines() == ['step,loss', '1,0.50', '2,nan']


def test_a_row_that_cannot_be_written_leaves_no_part_of_it(tmp_path):
    path = tmp_path / 'progress.csv'
    table = ProgressTable(path, ('step', 'loss'))
    table.truncate(0)
    table.append({'step': 1, 'loss': 0.5})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel writes two more bytes, then it refuses, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 2, limits[1]))
    try:
        with pytest.raises(OSError, match='progress.csv'):
            table.append({'step': 2, 'loss': 0.25})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    table.append({'step': 3, 'loss': 0.125})
    assert path.read_text().splitlines() == ['step,loss', '1,0.5', '3,0.125']


def test_a_row_cut_short_by_a_crash_is_skipped(tmp_path):
    path = tmp_path / 'progress.csv'
    for rest in ('3', '3,', '3,x', '3,\xff'):
        path.write_text(f'step,loss\n1,0.5\n{rest}', encoding='latin-1')
        table = ProgressTable(path, ('step', 'loss'))
        assert table.rows() == [{'step': 1.0, 'loss': 0.5}], rest
        table.truncate(9)
        assert path.read_text().splitlines() == ['step,loss', '1,0.5'], rest


def test_policies_of_this_package_are_found_in_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('nobody', 'models/nobody.pt', 'other/reach.pt', '../reach'):
        assert checkpoint_file(Path(name)) == Path(name)
    for name in ('reach', 'models/reach.pt'):
        assert checkpoint_file(Path(name)).is_file()
        # A file of one's own has the name.
        mine = tmp_path / name
        mine.parent.mkdir(exist_ok=True)
        mine.touch()
        assert checkpoint_file(Path(name)).resolve() == mine


def test_settings_that_name_files_become_absolute_and_policies_of_the_package_stay_names(
        tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_paths({
        'run_dir': 'reach', 'init': 'reach', 'resume': 'run', 'checkpoint': '', 'video': True,
        'env_id': 'run'}) == {
            'run_dir': f'{tmp_path}/reach', 'init': 'reach', 'resume': f'{tmp_path}/run',
            'checkpoint': '', 'video': True, 'env_id': 'run'}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return an installation that holds this module, below a folder that holds a checkout."""
    module = tmp_path / 'install/vdl_ros/lib/python3/site-packages/vdl_ros/common/resources.py'
    checkout = tmp_path / 'checkout/src/vdl_ros/common/resources.py'
    for path in (module.parent, checkout.parent):
        path.mkdir(parents=True)
    checkout.touch()
    module.symlink_to(checkout)
    monkeypatch.setattr(files, '__file__', str(module))
    return tmp_path / 'install/vdl_ros/share/vdl_ros'


def test_an_installed_file_is_preferred_to_that_of_the_checkout_and_a_missing_one_named(
        install, tmp_path):
    (tmp_path / 'checkout/models').mkdir()
    assert find_resource('models') == tmp_path / 'checkout/models', 'of linked sources'
    for root in (install, tmp_path / 'checkout'):
        (root / 'config').mkdir(parents=True)
    assert find_resource('config') == install / 'config'
    with pytest.raises(FileNotFoundError, match=r'models/pose\.pt is neither installed'):
        find_resource('models/pose.pt')

"""Where data files are found: in an installation, in a checkout, in neither."""

import pytest

from vdl_ros.common import files
from vdl_ros.common.files import find_resource


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

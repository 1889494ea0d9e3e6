"""The images have the system packages of the set-up; compose.yaml starts what exists."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def packages(name):
    """Return all words of the apt-get lines of a Dockerfile."""
    text = (ROOT / name).read_text().replace('\\\n', ' ')
    return set(' '.join(re.findall(r'apt-get install ([^&]+)', text)).split())


@pytest.mark.parametrize(('name', 'in_the_base'), [
    ('Dockerfile', set()), ('Dockerfile.jazzy', {'build-essential'})])
def test_an_image_has_the_system_packages_of_the_set_up(modules, name, in_the_base):
    needs = modules.system_packages.BUILDING + modules.system_packages.DRAWING
    wanted = {package for need in needs for package in need.packages.split()}
    assert wanted - in_the_base <= packages(name)


def test_compose_starts_launch_files_and_nodes_that_exist():
    services = yaml.safe_load((ROOT / 'compose.yaml').read_text())['services']
    assert {'learner', 'actors', 'view'} <= set(services)
    for service in services.values():
        ros2, verb, package, what = service['command'].split()[:4]
        assert (ros2, package) == ('ros2', 'vdl_ros')
        folder = {'launch': 'launch', 'run': 'src/vdl_ros/nodes'}[verb]
        assert (ROOT / folder / what).with_suffix('.py').is_file(), what
        # One graph: see docs/transport.md.
        assert (service['network_mode'], service['ipc']) == ('host', 'host')

"""The images have the system packages of the set-up; compose.yaml starts what exists."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_the_images_have_the_system_packages_of_the_set_up(modules):
    needs = modules.system_packages.BUILDING + modules.system_packages.DRAWING
    wanted = {package for need in needs for package in need.packages.split()}
    for name, in_the_base in (('Dockerfile', set()), ('Dockerfile.jazzy', {'build-essential'})):
        text = (ROOT / name).read_text().replace('\\\n', ' ')
        words = set(' '.join(re.findall(r'apt-get install ([^&]+)', text)).split())
        assert wanted - in_the_base <= words, name


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

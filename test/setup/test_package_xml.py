"""What is shipped: package.xml names all imports, images have the system packages, completion."""

import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
# Keys of rosdep, looked up in ros/rosdistro on 2026-08-22; '' where it has none.
KEYS = {
    'ale_py': '', 'av': '', 'gymnasium': 'python3-gymnasium-pip',
    'libusb_package': '', 'matplotlib': 'python3-matplotlib', 'mcap': '', 'msgspec': '',
    'mujoco': 'python3-mujoco-pip', 'numpy': 'python3-numpy', 'onnx': '',
    'onnxruntime': 'python3-onnxruntime-pip', 'optuna': '', 'packaging': 'python3-packaging',
    'PIL': 'python3-pil', 'psutil': 'python3-psutil', 'rosbags': 'python3-rosbags-pip',
    'sqlalchemy': 'python3-sqlalchemy', 'tensorboard': 'python3-tensorboard-pip',
    'threadpoolctl': '', 'torch': 'python3-torch', 'usb': 'python3-usb', 'viser': '',
    'websockets': 'python3-websockets', 'yaml': 'python3-yaml', 'zstandard': '',
}
# Imported only on request, or if it is there.
OPTIONAL = {'mlflow', 'pyarrow', 'triton', 'wandb'}
# What comes with a requirement: msgspec is a requirement of viser.
COMES_WITH = {'msgspec': 'viser', 'packaging': 'matplotlib', 'sqlalchemy': 'optuna',
              'websockets': 'viser', 'zstandard': 'mcap'}
# Names of distributions that are not those of their imports.
DISTRIBUTIONS = {'ale_py': 'ale-py', 'libusb_package': 'libusb-package', 'PIL': 'pillow',
                 'usb': 'pyusb', 'yaml': 'pyyaml'}
DEPENDS = {each.text for each in xml.etree.ElementTree.parse(ROOT / 'package.xml').getroot()
           if each.tag in ('depend', 'exec_depend')}


@functools.cache
def imports():
    """Return the names of all packages that src and launch import, without Python's own."""
    found = set()
    for folder in ('src', 'launch'):
        for path in (ROOT / folder).rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {each.name for each in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    found.add(node.module)
    return {name.split('.')[0] for name in found} - set(sys.stdlib_module_names) - {'vdl_ros'}


def test_every_import_is_a_dependency_of_the_package_and_no_key_is_left_over():
    missing = {name for name in imports() - OPTIONAL - {name for name in KEYS if not KEYS[name]}
               if KEYS.get(name, name) not in DEPENDS}
    assert missing == set()
    ours = {key for key in DEPENDS if key.startswith('python3-')}
    assert ours == {key for name, key in KEYS.items() if key and name in imports()}


def test_every_import_without_a_key_is_a_requirement_of_the_setup():
    lines = (ROOT / 'bootstrap' / 'requirements.txt').read_text().splitlines()
    wanted = {re.split('[=;]', line)[0].lower() for line in lines if re.match(r'\w', line)}
    for name in KEYS.keys() & imports():
        distribution, by = DISTRIBUTIONS.get(name, name), COMES_WITH.get(name)
        assert (by or distribution) in wanted, name
        assert by is None or distribution in {
            Requirement(each).name.lower() for each in importlib.metadata.requires(by)}, name


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


ASK = '''
source "$0"
while read -ra words; do
  COMP_WORDS=(ros2 "${words[@]}") COMP_CWORD=${#words[@]} COMPREPLY=()
  _ros2_complete
  echo "${COMPREPLY[@]}"
done
'''
EXPECTED = {
    'r': 'run',
    'run vdl_ros train_': 'train_pose',
    'launch vdl_ros a': 'actors.launch.py arm.launch.py',
    'launch vdl_ros actors.launch.py num_a': 'num_actors:=',
    'run vdl_ros plot --sm': '--smooth',
    'run vdl_ros teleop --ros-args -p first': 'first_timeout:=',
    'run no_such_package t': '',
}


@pytest.mark.slow
def test_tab_completes_verbs_executables_files_and_their_arguments():
    done = subprocess.run(
        ['bash', '-c', ASK, ROOT / 'bootstrap' / 'completion.bash'],
        input='\n'.join([*EXPECTED, '']), capture_output=True, text=True, check=True)
    assert dict(zip(EXPECTED, done.stdout.splitlines(), strict=True)) == EXPECTED

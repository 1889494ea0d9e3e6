"""Complete the ROS 2 wheels after installation.

Their CMake files contain paths of the machine that built them, and some interface packages of a
ROS 2 distribution are missing; these are generated from the definitions in the library
``rosbags``, or from those in ``bootstrap/interfaces``, which it lacks.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from steps import SetupError, Stamp, fingerprint, print_progress

INTERFACES = ('statistics_msgs', 'tf2_msgs')
DEFINITIONS = Path(__file__).parent / 'interfaces'
BUILDER_INCLUDE = re.compile(r'/opt/python/cp\w+-cp\w+/include/python[\d.]+')
BUILDER_PACKAGES = re.compile(r'/opt/python/cp\w+-cp\w+/lib/python[\d.]+/site-packages')

PACKAGE_XML = '''<?xml version="1.0"?>
<package format="3">
  <name>{name}</name>
  <version>0.0.0</version>
  <description>Generated: the wheels do not contain this interface package.</description>
  <maintainer email="maintainers@vdl-ros.example.org">vdl_ros maintainers</maintainer>
  <license>Apache-2.0</license>
  <buildtool_depend>ament_cmake</buildtool_depend>
  <buildtool_depend>rosidl_default_generators</buildtool_depend>
  {depends}
  <exec_depend>rosidl_default_runtime</exec_depend>
  <member_of_group>rosidl_interface_packages</member_of_group>
  <export><build_type>ament_cmake</build_type></export>
</package>
'''

CMAKE = '''cmake_minimum_required(VERSION 3.16)
project({name} LANGUAGES C CXX)
find_package(ament_cmake REQUIRED)
find_package(rosidl_default_generators REQUIRED)
{finds}
list(FILTER AMENT_EXTENSIONS_rosidl_generate_idl_interfaces EXCLUDE REGEX "_cpp:")
rosidl_generate_interfaces(${{PROJECT_NAME}} {files} DEPENDENCIES {depends})
ament_export_dependencies(rosidl_default_runtime)
ament_package()
'''

GENERATE = '''
import sys
from rosbags.typesys import Stores, get_typestore
store = get_typestore(Stores.ROS2_JAZZY)
for name in sorted(store.types):
    if name.startswith(sys.argv[1] + '/msg/'):
        text = store.generate_msgdef(name, ros_version=2)[0].split('=' * 40)[0]
        print('@' + name.rsplit('/')[-1])
        print(text)
'''


def variables(prefix: Path) -> dict[str, str]:
    """Return the environment variables that make the wheels one ROS 2 prefix.

    Without the last one every Python process would restart itself to set LD_LIBRARY_PATH.
    """
    libraries = [prefix / 'lib', *sorted(
        (prefix / 'lib').glob('python3.*/site-packages/ros_*.libs'))]
    return {
        'ROS_DISTRO': 'jazzy',
        'ROS_VERSION': '2',
        'ROS_PYTHON_VERSION': '3',
        'AMENT_PREFIX_PATH': str(prefix),
        'CMAKE_PREFIX_PATH': str(prefix),
        'LD_LIBRARY_PATH': ':'.join(map(str, libraries)),
        '_ROS_WHEELS_BOOTSTRAP_COMPLETE': '1',
    }


def repair(prefix: Path, force: bool = False) -> None:
    """Correct the paths in CMake files, and write the missing interface packages."""
    files = sorted((prefix / 'share').glob('**/*.cmake'))
    definitions = sorted(DEFINITIONS.glob('*/*/*'))
    stamp = Stamp(prefix / 'stamps' / 'repair', fingerprint(
        [Path(__file__), *definitions, *map(str, files)]))
    if stamp.fresh and not force:
        return
    code = 'from sysconfig import get_path as p; print(p("include"), p("purelib"), sep="\\n")'
    include, packages = subprocess.run(
        [prefix / 'bin' / 'python3', '-c', code], capture_output=True, text=True,
        check=True).stdout.splitlines()
    changed = 0
    for path in files:
        text = path.read_text()
        corrected = BUILDER_PACKAGES.sub(packages, BUILDER_INCLUDE.sub(include, text))
        if corrected != text:
            # A new file: the old one may be a hard link into uv's cache, shared by checkouts.
            path.unlink()
            path.write_text(corrected)
            changed += 1
    names = [*INTERFACES, *sorted(path.name for path in DEFINITIONS.iterdir())]
    for name in names:
        _write_interface(prefix, name)
    print_progress(f'ROS 2 wheels: corrected {changed} CMake files, added {", ".join(names)}')
    stamp.set()


def _write_interface(prefix: Path, name: str) -> None:
    own = DEFINITIONS / name
    found = {str(path.relative_to(own)): path.read_text()
             for path in sorted(own.glob('*/*'))} or _definitions_of_rosbags(prefix, name)
    folder = prefix / 'interfaces' / name
    depends = {'action_msgs'} if any(path.startswith('action/') for path in found) else set()
    for path, definition in found.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(definition)
        depends |= set(re.findall(r'^(\w+)/', definition, re.MULTILINE)) - {name}
    depend_lines = '\n  '.join(f'<depend>{each}</depend>' for each in sorted(depends))
    (folder / 'package.xml').write_text(PACKAGE_XML.format(name=name, depends=depend_lines))
    (folder / 'CMakeLists.txt').write_text(CMAKE.format(
        name=name, files=' '.join(found), depends=' '.join(sorted(depends)),
        finds='\n'.join(f'find_package({each} REQUIRED)' for each in sorted(depends))))


def _definitions_of_rosbags(prefix: Path, name: str) -> dict[str, str]:
    text = subprocess.run(
        [prefix / 'bin' / 'python3', '-c', GENERATE, name], capture_output=True, text=True,
        check=True, env=dict(os.environ) | variables(prefix)).stdout
    blocks = [block.split('\n', 1) for block in text.split('@') if block]
    if not blocks:
        raise SetupError(f'{name}: the library rosbags has no such interface package')
    return {f'msg/{message}.msg': definition.strip() + '\n' for message, definition in blocks}

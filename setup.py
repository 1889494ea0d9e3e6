"""pip installation of the part without ROS; name, version and description from package.xml."""

from pathlib import Path
from xml.etree import ElementTree

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
package = ElementTree.parse(ROOT / 'package.xml').getroot()


def section(name: str) -> list[str]:
    """Return the packages of one section of bootstrap/requirements.txt, in any version."""
    names: set[str] = set()
    current = ''
    for line in (ROOT / 'bootstrap' / 'requirements.txt').read_text().splitlines():
        if line.startswith('# ['):
            current = line[3:line.index(']')]
        elif line and not line.startswith('#') and current == name:
            package, _, rest = line.partition('==')
            _, semicolon, marker = rest.partition(';')
            names.add(package + semicolon + marker)
    return sorted(names)


setup(
    name=package.findtext('name'),
    version=package.findtext('version'),
    description=package.findtext('description'),
    license=package.findtext('license'),
    package_dir={'': 'src'},
    packages=find_packages('src'),
    python_requires='>=3.10',
    # Where vdl_ros/common/files.py finds them.
    data_files=[(f'share/vdl_ros/{folder.relative_to(ROOT)}', files)
                for top in ('config', 'models', 'urdf', 'specs')
                for folder in sorted({each.parent for each in (ROOT / top).rglob('*')})
                if (files := [str(each.relative_to(ROOT)) for each in sorted(folder.iterdir())
                              if each.is_file()])],
    entry_points={'console_scripts': [
        'vdl_train = vdl_ros.local_training:main',
        'vdl_experiment = vdl_ros.tools.experiment:main']},
    install_requires=section('torch') + section('python'),
    extras_require={name: section(name) for name in (
        'arm', 'export', 'onnx', 'atari', 'box2d', 'worlds', 'wandb', 'mlflow', 'test')},
)

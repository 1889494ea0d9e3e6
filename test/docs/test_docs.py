"""The documentation says what the code says."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ('src/vdl_ros/nodes', 'src/vdl_ros/tools', 'benchmarks')
PAGES = sorted([ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *(ROOT / 'docs').rglob('*.md')])


def test_the_settings_page_is_up_to_date():
    page = runpy.run_path(str(ROOT / 'docs' / 'make_settings.py'))['page']
    assert (ROOT / 'docs' / 'settings.md').read_text() == page(), \
        'run python3 docs/make_settings.py'


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r'\]\(([^)#:]+)(?:#[^)]*)?\)', path.read_text()):
        assert (path.parent / target).exists(), f'{path.name}: {target}'


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.name)
def test_launch_files_and_nodes_that_are_named_exist(path):
    text = path.read_text()
    for file in re.findall(r'ros2 launch vdl_ros (\S+\.launch\.py)', text):
        assert (ROOT / 'launch' / file).is_file(), file
    for node in re.findall(r'ros2 run vdl_ros (\w+)', text):
        assert any((ROOT / folder / f'{node}.py').is_file() for folder in PROGRAMS), node


def test_every_launch_file_and_node_is_in_the_readme():
    text = (ROOT / 'README.md').read_text()
    for path in (ROOT / 'launch').glob('*.launch.py'):
        assert path.name in text
    for folder in PROGRAMS[:2]:
        for path in (ROOT / folder).glob('[a-z]*.py'):
            assert path.stem.endswith('_config') or f'`{path.stem}`' in text


def test_the_changelog_starts_with_the_version_or_forthcoming():
    version = re.search('<version>(.+)</version>', (ROOT / 'package.xml').read_text())[1]
    headings = re.findall(r'^(.+)\n-+$', (ROOT / 'CHANGELOG.rst').read_text(), re.MULTILINE)
    assert headings[0].startswith(('Forthcoming', version))

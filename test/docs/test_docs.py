"""The documentation says what the code says."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import bench_third_party

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ('src/vdl_ros/nodes', 'src/vdl_ros/tools')
PAGES = sorted([ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *(ROOT / 'docs').rglob('*.md')])


def test_the_page_of_settings_is_up_to_date():
    made = runpy.run_path(str(ROOT / 'docs' / 'make_settings.py'))['page']()
    assert (ROOT / 'docs' / 'settings.md').read_text() == made, 'run docs/make_settings.py'


def test_the_tutorial_of_your_robot_shows_the_files_of_the_example():
    text = (ROOT / 'docs' / 'tutorials' / 'your_robot.md').read_text()
    for language, name in (('yaml', 'diff_drive.yaml'), ('python', 'drive.py')):
        shown, = re.findall(rf'^```{language}\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
        assert shown == (ROOT / 'examples' / 'diff_drive' / name).read_text()


def test_the_table_of_environments_of_others_is_what_was_measured():
    found = json.loads((ROOT / 'benchmarks' / 'results' / 'third_party.json').read_text())
    assert bench_third_party.markdown(found) in (ROOT / 'docs' / 'environments.md').read_text()
    assert {name: each['command'] for name, each in found['environments'].items()} == {
        name: bench_third_party.command(each)
        for name, each in bench_third_party.listed().items()}, 'measure what was changed'


def test_links_and_named_tests_lead_to_files():
    for page in PAGES:
        text = page.read_text()
        for link in re.findall(r'\]\(([^)#\s]+)[^)]*\)', text):
            assert '://' in link or (page.parent / link).exists(), (page.name, link)
    text = (ROOT / 'docs' / 'security.md').read_text()
    for name in re.findall(r'`((?:\w+/)*test_\w+\.py)`', text):
        assert (ROOT / 'test' / name).exists(), name


@pytest.mark.slow
def test_the_site_has_every_page_and_all_links_lead_somewhere(tmp_path):
    done = subprocess.run(
        [sys.executable, '-m', 'sphinx', '-q', '-c', ROOT / 'docs', ROOT, tmp_path],
        capture_output=True, text=True, timeout=300, check=True)
    assert done.stderr == ''
    for path in PAGES:
        assert (tmp_path / path.relative_to(ROOT)).with_suffix('.html').is_file()


def test_every_launch_file_node_and_tool_is_on_the_page_of_commands():
    text = (ROOT / 'docs' / 'commands.md').read_text()
    for path in (ROOT / 'launch').glob('*.launch.py'):
        assert path.name in text
    for folder in PROGRAMS:
        for path in (ROOT / folder).glob('[a-z]*.py'):
            assert path.stem.endswith('_config') or f'`{path.stem}`' in text


def test_the_changelog_starts_with_the_version_or_forthcoming():
    version = re.search('<version>(.+)</version>', (ROOT / 'package.xml').read_text())[1]
    headings = re.findall(r'^(.+)\n-+$', (ROOT / 'CHANGELOG.rst').read_text(), re.MULTILINE)
    assert headings[0].startswith(('Forthcoming', version))

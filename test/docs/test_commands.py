"""The commands in the documentation have the arguments that launch files and programs take."""

import argparse
import importlib
import re
import shlex
import sys
from functools import cache
from pathlib import Path

import pytest
from launch.launch_description_sources import PythonLaunchDescriptionSource

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *(ROOT / 'docs').rglob('*.md')]
PACKAGES = {'vdl_ros.nodes': ROOT / 'src' / 'vdl_ros' / 'nodes',
            'vdl_ros.tools': ROOT / 'src' / 'vdl_ros' / 'tools',
            'benchmarks': ROOT / 'benchmarks'}
# What stands for a number that the reader chooses.
NUMBERS = {'X': '0.1', 'Y': '0.1', 'Z': '0.1'}


class Accepted(BaseException):
    """A program has accepted its arguments."""


def commands(start):
    """Return (page, words after ``start``) of each command in the documentation."""
    found = []
    for page in PAGES:
        for line in re.findall(re.escape(start) + r' (\w(?:[^`\n\\]|\\\n)*)', page.read_text()):
            line = line.replace('\\\n', ' ').replace('$place', 'X Y Z')
            words = []
            for word in shlex.split(line, comments=True):
                if set(word) <= {*'|&;'} or word.startswith('>'):
                    break
                words.append(NUMBERS.get(word, word))
            found.append((page.name, words))
    return found


@cache
def launch_arguments(file):
    source = PythonLaunchDescriptionSource(str(ROOT / 'launch' / file))
    description = source.try_get_launch_description_without_context()
    return {each.name for each in description.get_launch_arguments()}


def test_launch_files_and_their_arguments_exist():
    unknown = [(page, file, word) for page, (file, *words) in commands('ros2 launch vdl_ros')
               if file.endswith('.launch.py') for word in words
               if ':=' in word and word.split(':=')[0] not in launch_arguments(file)]
    assert unknown == []


def test_programs_take_the_arguments(monkeypatch, capsys):
    for method in ('parse_args', 'parse_intermixed_args'):
        monkeypatch.setattr(argparse.ArgumentParser, method, only(method))
    refused = []
    for page, (name, *words) in commands('ros2 run vdl_ros'):
        package = next((each for each, folder in PACKAGES.items()
                        if (folder / f'{name}.py').is_file()), None)
        if package is None:
            refused.append((page, name, 'no such program'))
            continue
        module = importlib.import_module(f'{package}.{name}')
        # A text may name a program without its arguments; most nodes have parameters only.
        if words and (hasattr(module, 'argparse') or package == 'benchmarks'):
            monkeypatch.setattr(sys, 'argv', [name, *words])
            with pytest.raises(BaseException) as ended:
                module.main()
            if not isinstance(ended.value, Accepted):
                refused.append((page, name, words, capsys.readouterr().err))
    assert refused == []


def only(method):
    """Return the parser's method, which ends the program after it has parsed."""
    parse = getattr(argparse.ArgumentParser, method)

    def stop(*args):
        parse(*args)
        raise Accepted
    return stop

"""Installation by uv: pip's settings, the choice of PyTorch's build."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def index(modules, monkeypatch, tmp_path):
    """Return the index of a virtual environment on a machine without a GPU."""
    for name in ('PIP_FIND_LINKS', 'PIP_EXTRA_INDEX_URL', 'PIP_INDEX_URL', 'VDL_TORCH_INDEX'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('PIP_CONFIG_FILE', '/dev/null')
    monkeypatch.setattr(modules.package_index, 'NVIDIA', ())
    return modules.package_index.PackageIndex(tmp_path / 'venv')


@pytest.fixture
def commands(modules, index, monkeypatch):
    """Return the list of (words, environment) of the commands, which are not run."""
    found = []
    monkeypatch.setattr(modules.package_index, 'run', lambda title, command, log, env=None: (
        found.append((' '.join(map(str, command)), env))))
    listed = SimpleNamespace(stdout="install.find-links='/wheels'\n")
    monkeypatch.setattr(modules.package_index.subprocess, 'run', lambda *_, **__: listed)
    return found


def test_pytorch_is_searched_in_the_index_of_the_user_in_wheels_and_among_cpu_builds(
        index, modules, commands, monkeypatch, capsys):
    monkeypatch.setenv('VDL_TORCH_INDEX', 'https://user')
    index.install_torch(['torch==9.9.1'])
    monkeypatch.delenv('VDL_TORCH_INDEX')
    monkeypatch.setattr(modules.package_index, 'has_cpu_wheel', lambda *words: words == (
        'torch==9.9.2', ['/wheels']))
    for version in ('9.9.2', '9.9.3'):
        index.install_torch([f'torch=={version}'])
    monkeypatch.setattr(modules.package_index, 'NVIDIA', (Path('/'),))
    index.install_torch(['torch==9.9.4'])
    ends = [words.partition('unsafe-best-match ')[2] for words, _ in commands]
    assert ends == ['--index https://user torch==9.9.1', 'torch==9.9.2',
                    '--torch-backend cpu torch==9.9.3', 'torch==9.9.4']
    assert commands[2][1]['UV_HTTP_RETRIES'] == '0'
    assert 'CUDA' not in capsys.readouterr().out


def test_without_a_cpu_build_one_line_prints_the_cost_of_cuda(
        index, modules, commands, monkeypatch, capsys):
    installed = []

    def install(title, requirements, *options, env=None):
        if options:
            raise modules.steps.SetupError('no such build')
        installed.extend(requirements)

    monkeypatch.setattr(index, 'install', install)
    index.install_torch(['torch==9.9.4'])
    assert installed == ['torch==9.9.4']
    (line,) = capsys.readouterr().out.splitlines()
    assert 'CUDA' in line
    assert 'VDL_TORCH_INDEX=URL make setup' in line


def test_a_wheel_for_another_python_does_not_count(modules, tmp_path):
    wheel = tmp_path / 'torch-9.9.1+cpu-cp399-cp399-manylinux_2_28_x86_64.whl'
    wheel.touch()
    assert not modules.package_index.has_cpu_wheel('torch==9.9.1', [str(tmp_path)])
    wheel.rename(tmp_path / wheel.name.replace(
        'cp399-', f'cp{sys.version_info[0]}{sys.version_info[1]}-'))
    assert modules.package_index.has_cpu_wheel('torch==9.9.1', [str(tmp_path)])


def test_environment_variables_override_pips_files_and_missing_folders_are_left_out(
        modules, tmp_path):
    assert modules.package_index.read_pip_settings(
        "global.index-url='https://a'\ninstall.index-url='https://b'\n"
        "global.cert='/c'\n:env:.find_links='/wheels /more'\nfreeze.index-url='https://d'\n") == {
            'index-url': 'https://b', 'cert': '/c', 'find-links': '/wheels /more'}
    options = modules.package_index.pip_options({
        'find-links': f'{tmp_path} /nowhere https://wheels', 'index-url': 'https://a',
        'extra-index-url': 'file:///nowhere https://b'})
    assert options[2:] == ['--default-index', 'https://a', '--index', 'https://b',
                           '--find-links', str(tmp_path), '--find-links', 'https://wheels']

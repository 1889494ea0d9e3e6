"""Installation by uv: pip's settings, the choice of PyTorch's build."""

import functools
import http.server
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

UV = Path(sys.prefix) / 'bin' / 'uv'
METADATA = 'Metadata-Version: 2.1\nName: torch\nVersion: {}\n'
WHEEL = 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n'


def make_wheel(folder, version):
    """Write an empty wheel of torch."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f'torch-{version}.dist-info'
    with zipfile.ZipFile(folder / f'torch-{version}-py3-none-any.whl', 'w') as file:
        file.writestr(f'{info}/METADATA', METADATA.format(version))
        file.writestr(f'{info}/WHEEL', WHEEL)
        file.writestr(f'{info}/RECORD', '')


@pytest.fixture
def serve(tmp_path):
    """Return a function that serves a folder of wheels as a package index and returns its URL."""
    servers = []

    def start(folder):
        page = folder / 'torch' / 'index.html'
        page.parent.mkdir()
        page.write_text(''.join(f'<a href="../{each.name}">{each.name}</a>'
                                for each in folder.glob('*.whl')))
        handler = functools.partial(QuietHandler, directory=folder)
        servers.append(http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler))
        threading.Thread(target=servers[-1].serve_forever).start()
        return f'http://127.0.0.1:{servers[-1].server_port}'

    yield start
    for each in servers:
        each.shutdown()
        each.server_close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope='module')
def prefix(tmp_path_factory):
    """Return a virtual environment, shared because creating one takes seconds."""
    prefix = tmp_path_factory.mktemp('index') / 'venv'
    subprocess.run([sys.executable, '-m', 'venv', prefix], check=True)
    (prefix / 'bin' / 'uv').symlink_to(UV)
    return prefix


@pytest.fixture
def index(modules, monkeypatch, prefix):
    """Return the index of a virtual environment without torch, on a machine without a GPU."""
    subprocess.run([UV, 'pip', 'uninstall', '--python', prefix / 'bin' / 'python3', 'torch'],
                   check=True, capture_output=True)
    for name in ('PIP_FIND_LINKS', 'PIP_EXTRA_INDEX_URL', 'PIP_INDEX_URL', 'VDL_TORCH_INDEX'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('PIP_CONFIG_FILE', '/dev/null')
    monkeypatch.setattr(modules.package_index, 'NVIDIA', ())
    return modules.package_index.PackageIndex(prefix)


def version(index):
    code = 'import importlib.metadata as m; print(m.version("torch"))'
    return subprocess.run([index.prefix / 'bin' / 'python3', '-c', code], check=True,
                          capture_output=True, text=True).stdout.strip()


def test_pytorch_is_installed_from_the_index_of_the_user(index, serve, monkeypatch, tmp_path):
    make_wheel(tmp_path / 'wheels', '9.9.1+cpu')
    make_wheel(tmp_path / 'wheels', '9.9.2+cpu')
    monkeypatch.setenv('VDL_TORCH_INDEX', serve(tmp_path / 'wheels'))
    index.install_torch(['torch==9.9.1'])
    assert version(index) == '9.9.1+cpu'


def test_pytorch_is_installed_from_a_local_wheel(index, monkeypatch, tmp_path):
    make_wheel(tmp_path / 'wheels', '9.9.3+cpu')
    monkeypatch.setenv('PIP_FIND_LINKS', str(tmp_path / 'wheels'))
    index.install_torch(['torch==9.9.3'])
    assert version(index) == '9.9.3+cpu'


def test_a_wheel_for_another_python_does_not_count(modules, tmp_path):
    wheel = tmp_path / 'torch-9.9.1+cpu-cp399-cp399-manylinux_2_28_x86_64.whl'
    wheel.touch()
    assert not modules.package_index.has_cpu_wheel('torch==9.9.1', [str(tmp_path)])
    wheel.rename(tmp_path / wheel.name.replace(
        'cp399-', f'cp{sys.version_info[0]}{sys.version_info[1]}-'))
    assert modules.package_index.has_cpu_wheel('torch==9.9.1', [str(tmp_path)])


def test_without_a_cpu_build_one_line_prints_the_cost_of_cuda(
        index, serve, monkeypatch, tmp_path, capsys):
    make_wheel(tmp_path / 'wheels', '9.9.4')
    monkeypatch.setenv('PIP_INDEX_URL', serve(tmp_path / 'wheels'))
    index.install_torch(['torch==9.9.4'])
    assert version(index) == '9.9.4'
    lines = [line for line in capsys.readouterr().out.splitlines() if 'CUDA' in line]
    assert len(lines) == 1
    assert 'VDL_TORCH_INDEX=URL make setup' in lines[0]


def test_environment_variables_override_pips_files(modules):
    settings = modules.package_index.read_pip_settings(
        "global.index-url='https://a'\ninstall.index-url='https://b'\n"
        "global.cert='/c'\n:env:.find_links='/wheels /more'\nfreeze.index-url='https://d'\n")
    assert settings == {'index-url': 'https://b', 'cert': '/c', 'find-links': '/wheels /more'}


def test_missing_folders_are_left_out(modules, tmp_path):
    options = modules.package_index.pip_options({
        'find-links': f'{tmp_path} /nowhere https://wheels', 'index-url': 'https://a',
        'extra-index-url': 'file:///nowhere https://b'})
    assert options[2:] == ['--default-index', 'https://a', '--index', 'https://b',
                           '--find-links', str(tmp_path), '--find-links', 'https://wheels']

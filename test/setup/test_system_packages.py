"""System packages: detection, installation, and the message if that is impossible."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = 'missing: the gadget; run: {}apt install gadget-package'
# A fake apt-get that records its arguments; its package provides a program.
APT_GET = '''#!/bin/sh
echo "$DEBIAN_FRONTEND $*" >> {folder}/calls
test "$1" = update || {install}
'''
INSTALL = 'cp "$0" {folder}/gadget'


@pytest.fixture
def machine(modules, monkeypatch, tmp_path):
    """Return a function that simulates a machine without a program; it returns system_packages."""
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


def test_root_installs_missing_packages_once(machine, tmp_path, capsys):
    packages = machine()
    for _ in range(2):
        packages.install(tmp_path / 'apt.log', with_tests=True)
    assert (tmp_path / 'bin/calls').read_text().splitlines() == [
        'noninteractive update -q',
        'noninteractive install -qy --no-install-recommends gadget-package']
    assert '[setup] missing: the gadget; installing gadget-package' in capsys.readouterr().out


def test_without_rights_the_error_has_the_command(machine, modules, tmp_path):
    packages = machine(uid=1000)
    with pytest.raises(modules.steps.SetupError, match=f'^{COMMAND.format("sudo ")}$'):
        packages.install(tmp_path / 'apt.log', with_tests=True)
    assert not (tmp_path / 'bin/calls').exists()


def test_after_a_failed_installation_the_error_has_the_command(machine, modules, tmp_path):
    packages = machine(install='exit 100')
    with pytest.raises(modules.steps.SetupError, match=f'^{COMMAND.format("")}$'):
        packages.install(tmp_path / 'apt.log', with_tests=True)


def test_opengl_is_optional_for_training_but_not_for_tests(machine, modules, tmp_path, capsys):
    packages = machine(uid=1000)
    packages.DRAWING, packages.ALL = packages.ALL, packages.ALL
    packages.install(tmp_path / 'log', with_tests=False)
    output = capsys.readouterr().out
    assert output.startswith('[setup] missing: the gadget; training works without')
    with pytest.raises(modules.steps.SetupError, match='^missing: the gadget'):
        packages.install(tmp_path / 'log', with_tests=True)


def test_the_readme_names_every_package(modules):
    packages = modules.system_packages
    names = dict.fromkeys(name for need in packages.ALL for name in need.packages.split())
    assert f'apt install {" ".join(names)}\n' in (ROOT / 'docs' / 'install.md').read_text()

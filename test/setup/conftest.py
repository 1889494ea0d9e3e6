"""Fixture with the modules of bootstrap/, imported by bare name as the set-up does."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BOOTSTRAP = Path(__file__).resolve().parents[2] / 'bootstrap'
NAMES = ('steps', 'ros_wheels', 'package_index', 'system_packages', 'environment', 'workspace')


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(BOOTSTRAP))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        sys.modules.pop(name, None)

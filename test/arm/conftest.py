"""Imports the package before any test imports mujoco, whose way to OpenGL it chooses."""

import fake_owi535 as fake
import pytest

import vdl_ros.arm  # noqa: F401


@pytest.fixture
def bench(monkeypatch):
    """Return a device that is found by the processes of the test."""
    with fake.plugged_in() as bench:
        for name, value in bench.env.items():
            monkeypatch.setenv(name, value)
        yield bench

"""Fixtures of the tests of benchmarks."""

import contextlib

import psutil
import pytest


@pytest.fixture
def workers():
    """Return a function: the living processes of a command with this text in a word."""
    def find(command, part):
        found = []
        for process in command.family():
            with contextlib.suppress(psutil.Error):  # it went in between
                if any(part in word for word in process.cmdline()):
                    found.append(process)
        return found
    return find

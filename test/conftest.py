"""What every test has: a ROS domain of its own, and a run folder that goes with it."""

from __future__ import annotations

import pytest
from domain_coordinator import domain_id


@pytest.fixture(autouse=True)
def ros_domain(monkeypatch):
    """Nodes of one test hear nobody else: not another test, not another host."""
    with domain_id() as number:
        monkeypatch.setenv('ROS_DOMAIN_ID', str(number))
        monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
        yield number

"""Bags of a moving arm."""

import pytest
from bag_files import START_NS, BagBuilder, add_scenario


@pytest.fixture
def builder(tmp_path):
    return BagBuilder(tmp_path / 'bag')


@pytest.fixture
def teleop(builder):
    """Return a bag of two sequences, of 40 and 25 images at 20 Hz, and the images' stamps."""
    first = add_scenario(builder, 40)
    second = add_scenario(builder, 25, begin_ns=START_NS + 10 * 10**9)
    return builder.write(), [first, second]

"""What the twins are compared with."""

import numpy as np
import pytest

from vdl_ros.arm.model.joints import JOINTS


@pytest.fixture
def play_of_simulations():
    """Return a function: the play of simulations 0 to N - 1 after a second reset, [N, 5]."""
    def draw(seed):
        random = np.random.default_rng(seed)
        for _ in range(2):
            random.uniform(size=len(JOINTS))  # speeds
            play = random.uniform(-1.0, 1.0, len(JOINTS))
        return play

    return lambda count: np.array([draw(seed) for seed in range(count)])

"""Stepping environments: which observations begin an episode."""

from types import SimpleNamespace

import gymnasium
import numpy as np

from vdl_ros.rl.acting.env_stepper import EnvStepper


def test_a_step_in_which_a_robot_was_lost_is_none_of_an_episode():
    """Two robots: the first ends an episode, the second is lost for two steps."""
    done = iter([(0, 0), (1, 0), (0, 0), (0, 0)])
    lost = iter([(0, 0), (0, 1), (0, 1), (0, 0)])
    envs = SimpleNamespace(
        num_envs=2, single_action_space=gymnasium.spaces.Discrete(2),
        reset=lambda seed: (np.zeros(2), {}),
        step=lambda actions: (np.zeros(2), np.zeros(2), np.array(next(done), bool),
                              np.zeros(2, bool), {'is_lost': np.array(next(lost), bool)}))
    stepper = EnvStepper(envs, 1)
    found = [stepper.step(np.zeros(2, int)).is_reset.tolist() for _ in range(4)]
    assert found == [[False, False], [False, True], [True, True], [False, False]]
    assert stepper.is_reset.tolist() == [False, False]

"""Print the mean return of uniformly random actions in environments, for the reference table."""

from __future__ import annotations

import statistics
import sys

import gymnasium
import numpy as np

import vdl_ros.envs  # noqa: F401  (registers the arm's)

ENVS, EPISODES_EACH = 50, 20


def random_return(env_id: str) -> float:
    """Return the mean return of the first episodes of each of several environments."""
    envs = gymnasium.make_vec(env_id, num_envs=ENVS)
    envs.action_space.seed(1)
    envs.reset(seed=1)
    returns: list[list[float]] = [[] for _ in range(ENVS)]
    totals = np.zeros(ENVS)
    while min(map(len, returns)) < EPISODES_EACH:
        _, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
        # The step after an episode's last one resets, and its reward is 0.
        totals += rewards
        for index in np.flatnonzero(terminated | truncated):
            returns[index].append(float(totals[index]))
            totals[index] = 0.0
    envs.close()
    # As many of each: short episodes do not count more often.
    return statistics.fmean(each for of_env in returns for each in of_env[:EPISODES_EACH])


if __name__ == '__main__':
    for name in sys.argv[1:]:
        print(f'{name}: random {random_return(name):.1f}, threshold '
              f'{gymnasium.spec(name).reward_threshold}', flush=True)

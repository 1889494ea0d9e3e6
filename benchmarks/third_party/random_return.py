"""Print the mean return of uniformly random actions as a JSON object.

Arguments: the settings of the environment as a JSON object; env_modules; and the seconds after
which it ends with the episodes so far (without end).
"""

import json
import statistics
import sys
import time

import numpy as np

from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.envs.env_modules import import_modules
from vdl_ros.envs.factory import make

ENVS, EPISODES_EACH = 4, 25


def random_return(config: EnvConfig, seconds: float) -> tuple[float | None, int]:
    """Return the mean return of the first episodes of each copy, and how many these were."""
    env = make(config, seed=1, num_envs=ENVS)
    env.action_space.seed(1)
    env.reset()
    returns: list[list[float]] = [[] for _ in range(env.num_envs)]
    totals = np.zeros(env.num_envs)
    deadline = time.monotonic() + seconds
    while min(map(len, returns)) < EPISODES_EACH and time.monotonic() < deadline:
        _, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
        # The step after an episode's last one resets, and its reward is 0.
        totals += rewards
        for index in np.flatnonzero(terminated | truncated):
            returns[index].append(float(totals[index]))
            totals[index] = 0.0
    env.close()
    # As many of each: short episodes do not count more often.
    fewest = min(EPISODES_EACH, *map(len, returns))
    kept = [each for of_env in returns for each in of_env[:fewest]]
    return (statistics.fmean(kept) if kept else None), len(kept)


def main() -> None:
    """Print ``mean_return``, None without an episode, and ``episodes``."""
    settings, modules, seconds = *sys.argv[1:], *('', 'inf')[len(sys.argv) - 2:]
    import_modules(EnvModulesConfig(env_modules=modules))
    mean, episodes = random_return(EnvConfig(**json.loads(settings)), float(seconds))
    print(json.dumps({'mean_return': mean, 'episodes': episodes}))


if __name__ == '__main__':
    main()

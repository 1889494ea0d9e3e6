"""EnvPool's environments as ``envpool/NAME``: a module for ``env_modules``."""

from functools import partial
from typing import Any

import envpool
import gymnasium
from gymnasium.vector.utils import batch_space


class EnvPool(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Copies that EnvPool steps itself.

    Not EnvPool's own object: ``gymnasium.make_vec`` sets ``spec``, in which it has its spaces.
    """

    def __init__(self, task: str, num_envs: int, **kwargs: Any):
        self._make = partial(envpool.make_gymnasium, task, num_envs=num_envs, **kwargs)
        pool = self._make()
        self.num_envs, self.metadata = num_envs, pool.metadata
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._pool = pool

    def reset(self, *, seed: int | list[int] | None = None,
              options: dict[str, Any] | None = None) -> Any:
        """Begin the episodes; EnvPool takes a seed only as it makes its copies."""
        if seed is not None:
            self._pool.close()
            self._pool = self._make(seed=seed)
        return self._pool.reset()

    def step(self, actions: Any) -> Any:
        return self._pool.step(actions)

    def close_extras(self, **kwargs: Any) -> None:
        self._pool.close()


for each in envpool.list_all_envs():
    name = each.replace('/', '-')
    gymnasium.register(f'envpool/{name}', vector_entry_point=partial(EnvPool, each))

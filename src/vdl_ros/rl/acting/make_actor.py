"""The actor whose policy NumPy computes, and the choice between NumPy and PyTorch."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from vdl_ros.common.metrics import ThreadTimer
from vdl_ros.rl.acting.actor import Actor
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.numpy_policy import NumpyPolicy, make_numpy_policy
from vdl_ros.rl.settings import AlgorithmConfig, TrainConfig

if TYPE_CHECKING:
    from torch import Tensor

    from vdl_ros.rl.policy.policy import Policy


class NumpyActor(Actor):
    """An actor whose policy NumPy computes; ``seed`` is also of sampling.

    Actors that share a world and its seed have different random numbers, by ``stream``.
    """

    policy: NumpyPolicy
    state: NDArray[Any]

    def __init__(
        self, envs: VectorEnv, policy: NumpyPolicy, schema: UnrollSchema, seed: int,
        timer: ThreadTimer | None = None,
        exploration: Callable[[int], float] = lambda agent_steps: 0.0, stream: int = 0,
    ) -> None:
        super().__init__(envs, policy, schema, seed, timer, exploration)
        self._random = np.random.default_rng([seed, stream])

    def use(self, arrays: Mapping[str, NDArray[Any]], exploration: float) -> None:
        self.policy.load(arrays)
        self.policy.exploration = exploration

    def choose(
        self, observations: NDArray[Any], is_reset: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        parameters, self.state = self.policy.forward(observations, is_reset, self.state)
        return self.policy.distribution.sample(parameters, self._random)

    def append_last_action(self, actions: NDArray[Any], rewards: NDArray[Any]) -> None:
        self.state = self.policy.append_last_action(self.state, actions, rewards)


def make_actor(
    envs: VectorEnv, train: TrainConfig, algorithm_config: AlgorithmConfig,
    frames_per_observation: int, *, seed: int, timer: ThreadTimer, threads: int,
    exploration: Callable[[int], float], stream: int = 0,
    follow: 'Callable[[Policy, Callable[[NDArray[Any]], Tensor]], None] | None' = None,
) -> Actor:
    """Return an actor; PyTorch, which takes two seconds to import, only if it is needed.

    Args:
        threads: CPU threads of the network, from now on in the whole process.
        follow: takes the policy, whose gradients it needs, and what returns its next state by the
            last rewards.
    """
    spaces = envs.single_observation_space, envs.single_action_space

    def schema(state_size: int) -> UnrollSchema:
        return UnrollSchema(*spaces, train.unroll_length, frames_per_observation, state_size)

    # By default a thread for each core in each of many processes, which slows all of them.
    threadpool_limits(threads, 'blas')
    small = None if follow else make_numpy_policy(train, *spaces, algorithm_config)
    if small is not None:
        return NumpyActor(envs, small, schema(small.state_size), seed, timer, exploration, stream)

    import torch

    from vdl_ros.rl.acting.torch_actor import TorchActor
    from vdl_ros.rl.policy.policy import make_policy
    torch.set_num_threads(threads)
    policy = make_policy(train, *spaces, algorithm_config)
    actor = TorchActor(envs, policy, schema(policy.state_size), seed, timer, exploration)
    if follow is not None:
        # The first observation is not perturbed: the policy has no weights yet.
        follow(policy, actor.next_state)
    return actor

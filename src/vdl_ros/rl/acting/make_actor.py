"""Make the actor for a policy: with NumPy where that can compute it, else with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gymnasium.vector import VectorEnv
from threadpoolctl import threadpool_limits

from vdl_ros.common.thread_timer import ThreadTimer
from vdl_ros.rl.acting.actor import Actor
from vdl_ros.rl.acting.numpy_actor import NumpyActor
from vdl_ros.rl.algorithm_config import AlgorithmConfig
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.policy.numpy_policy import make_numpy_policy
from vdl_ros.rl.train_config import TrainConfig

if TYPE_CHECKING:
    from torch import Tensor

    from vdl_ros.rl.policy.policy import Policy

__all__ = ['make_actor']


def make_actor(
    envs: VectorEnv, train: TrainConfig, algorithm_config: AlgorithmConfig,
    frames_per_observation: int, *, seed: int, timer: ThreadTimer, threads: int,
    exploration: Callable[[int], float], stream: int = 0,
    follow: Callable[[Policy, Callable[[], Tensor]], None] | None = None,
) -> Actor:
    """
    Return an actor; PyTorch, which takes two seconds to import, is imported only if it is needed.

    Args:
        envs: the environments.
        train: settings of the policy and of unrolls.
        algorithm_config: the algorithm's settings.
        frames_per_observation: see :class:`UnrollSchema`.
        seed: of the first episodes and of sampling.
        timer: of the thread that acts.
        threads: CPU threads of the network, from now on in the whole process.
        exploration: see ``exploration.py``.
        stream: see :class:`NumpyActor`; with PyTorch all actors of a process share one stream.
        follow: takes the policy, whose gradients it needs, and what returns its state.

    Raises:
        ValueError: spaces that no policy is for, or unrolls that would be too large.
    """
    spaces = envs.single_observation_space, envs.single_action_space

    def schema(state_size: int) -> UnrollSchema:
        return UnrollSchema(*spaces, train.unroll_length, frames_per_observation, state_size)

    # By default a thread for each core in each of many processes, which slows all of them.
    threadpool_limits(threads, 'blas')
    small = None if follow else make_numpy_policy(train, *spaces, algorithm_config)
    if small is not None:
        return NumpyActor(envs, small, schema(small.state_size), seed, timer, exploration,
                          stream)

    import torch

    from vdl_ros.rl.acting.torch_actor import TorchActor
    from vdl_ros.rl.policy.factory import make_policy
    torch.set_num_threads(threads)
    policy = make_policy(train, *spaces, algorithm_config)
    actor = TorchActor(envs, policy, schema(policy.state_size), seed, timer, exploration)
    if follow is not None:
        # The first observation is not perturbed: the policy has no weights yet.
        follow(policy, lambda: actor.state)
    return actor

"""Learning algorithms: one file for each, to be read from top to bottom.

An algorithm turns a batch into optimizer steps; see ``algorithm.py``. To add one, write a file
here named as the algorithm with a class ``Algorithm`` in it, its settings in
``rl/settings.py``, and ``config/algorithms/<name>.yaml``.
"""

import importlib

from vdl_ros.rl.algorithms.algorithm import Algorithm
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.policy.policy import Policy
from vdl_ros.rl.settings import AlgorithmConfig, TrainConfig

__all__ = ['Algorithm', 'make_algorithm']


def make_algorithm(
    policy: Policy, config: TrainConfig, algorithm_config: AlgorithmConfig, schema: UnrollSchema,
    group: Group | None = None,
) -> Algorithm:
    """Return the algorithm that ``config`` names; ValueError: it needs too much memory."""
    module = importlib.import_module(f'{__name__}.{config.algorithm}')
    algorithm: Algorithm = module.Algorithm(
        policy, config, algorithm_config, schema, group or Group())
    return algorithm

"""Registers the contracts of this host as environments: the names that may come over the graph."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import gymnasium
from rclpy.node import Node

from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.envs.factory import ROBOT
from vdl_ros.robots.contract_file import known_contracts, read_contract
from vdl_ros.robots.task import describe_task
from vdl_ros.ros.robots.robot_env import RobotVectorEnv

__all__ = ['register']


def register(config: EnvModulesConfig, node: Node, stop: threading.Event) -> None:
    """
    Register ``robot/NAME`` for each contract of this host.

    What comes over the graph can only choose among them. A contract is read when it is chosen.

    Args:
        config: settings of this host.
        node: gives the namespace of the topics.
        stop: ends waiting environments when set.

    Raises:
        SettingError: the user's folder is not there.
    """
    for name, path in known_contracts(config.robots).items():
        gymnasium.registry.pop(f'{ROBOT}{name}', None)
        gymnasium.register(
            f'{ROBOT}{name}', vector_entry_point=_creator(path, node.get_namespace(), stop))


def _creator(path: Path, namespace: str, stop: threading.Event) -> Any:
    # A function: Gymnasium copies what it registers, and an event cannot be copied.
    def make(num_envs: int, **arguments: Any) -> RobotVectorEnv:
        return RobotVectorEnv(
            num_envs, contract=read_contract(path), namespace=namespace, stop=stop, **arguments)
    make.checkpoint_description = (  # type: ignore[attr-defined]
        lambda: describe_task(read_contract(path)))
    return make

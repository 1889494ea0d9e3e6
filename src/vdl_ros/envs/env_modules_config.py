"""Settings of one host: the modules with its environments, and its robots."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['EnvModulesConfig']


@dataclass(frozen=True)
class EnvModulesConfig:
    """Settings of the environments that each process has for itself; they never travel."""

    env_modules: str = setting(
        '', 'Python modules that this process imports, separated by commas; they register '
        'environments and contain wrappers. Each host has its own: the learner sends no names of '
        'modules, and what it sends imports nothing.')
    robots: str = setting(
        '', 'Folder with contracts of robots, NAME.yaml for env_id:=robot/NAME, beside those of '
        'this package. A contract names Python functions of this host: use files that you trust. '
        'Each host has its own, as of env_modules.')

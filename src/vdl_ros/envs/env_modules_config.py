"""Settings of one host: the modules with its environments, and its robots."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['EnvModulesConfig']


@dataclass(frozen=True)
class EnvModulesConfig:
    """Settings of the environments that each process has for itself; they never travel."""

    env_modules: str = setting(
        '', 'Python modules with environments and wrappers, separated by commas, which this '
        'process imports. The learner cannot name any.')
    robots: str = setting(
        '', 'Folder with further contracts, NAME.yaml for env_id:=robot/NAME. They name Python '
        'functions: use files that you trust.')

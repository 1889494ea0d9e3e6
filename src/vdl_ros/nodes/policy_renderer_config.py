"""Settings of the node that plays the current policy and publishes images of it."""

from __future__ import annotations

from dataclasses import dataclass

from vdl_ros.common.settings import setting

__all__ = ['PolicyRendererConfig']


@dataclass(frozen=True)
class PolicyRendererConfig:
    """The node ``policy_renderer``."""

    view_rate: float = setting(
        5.0, 'Largest rate of images of the policy, while somebody watches.', minimum=0.1,
        maximum=60.0, unit='Hz')

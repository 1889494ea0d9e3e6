"""Reference returns of environments, from ``config/reference_returns.yaml``."""

from __future__ import annotations

import yaml

from vdl_ros.common.resources import find_resource
from vdl_ros.common.settings import build
from vdl_ros.experiments.specs.spec import Spec
from vdl_ros.experiments.specs.spec_config import ReferenceConfig

__all__ = ['reference_of', 'references']


def references() -> dict[str, ReferenceConfig]:
    """Return the table, by environment."""
    content = yaml.safe_load(find_resource('config/reference_returns.yaml').read_text())
    return {env_id: build(ReferenceConfig, row) for env_id, row in content.items()}


def reference_of(spec: Spec) -> ReferenceConfig | None:
    """Return the reference of a spec, or else of its environment; None if there is neither."""
    return spec.reference or references().get(spec.env_id)

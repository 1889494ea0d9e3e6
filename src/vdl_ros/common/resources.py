"""Paths of the package's data files: ``config``, ``urdf``, ``models``, ``launch``."""

from __future__ import annotations

from pathlib import Path

__all__ = ['find_resource']


def find_resource(name: str) -> Path:
    """
    Return the path of a file or folder: of the installation, or else of the checkout.

    Args:
        name: relative to the package's root, such as ``urdf/owi535.urdf.xacro``.

    Raises:
        FileNotFoundError: neither has it.
    """
    here = Path(__file__)
    # The installation that this module belongs to, not another one on AMENT_PREFIX_PATH.
    roots = [parent / 'share' / 'vdl_ros' for parent in here.parents]
    roots.append(here.resolve().parents[3])
    for root in roots:
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f'{name} is neither installed nor in a checkout')

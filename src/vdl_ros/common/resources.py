"""Where the package keeps the files that are no Python."""

from __future__ import annotations

from pathlib import Path

__all__ = ['share_file']


def share_file(name: str) -> Path:
    """
    Return the path of a file of the installed package, or else of the checkout.

    Args:
        name: such as ``urdf/owi535.urdf.xacro``.

    Raises:
        FileNotFoundError: neither has it.
    """
    here = Path(__file__)
    places = [parent / 'share' / 'vdl_ros' for parent in here.parents]
    places.append(here.resolve().parents[3])
    for place in places:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f'{name} is neither installed nor in a checkout')

"""Settings of the arm's description; the same for all nodes of one arm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from vdl_ros.arm.model.geometry import ArmGeometry, GeometryError, load
from vdl_ros.common.settings import setting

__all__ = ['GeometryConfig']


@dataclasses.dataclass(frozen=True)
class GeometryConfig:
    """The arm's description: URDF file and xacro arguments."""

    urdf: str = setting('', 'Xacro or URDF file; empty: that of this package.')
    xacro_args: str = setting(
        '', 'Arguments of the xacro file, such as "forearm_length=0.115 hand_length=0.12".')

    @property
    def arguments(self) -> dict[str, str]:
        """
        Return the xacro arguments by name.

        Raises:
            GeometryError: a word without a name or value.
        """
        found = {}
        for word in self.xacro_args.split():
            name, equals, value = word.partition('=')
            if not (name and equals and value):
                raise GeometryError(f'xacro_args: {word!r} is not allowed: name=value')
            found[name] = value
        return found

    def load(self, more: Mapping[str, float | str] | None = None) -> ArmGeometry:
        """
        Return the geometry.

        Args:
            more: further xacro arguments; those of the user override them.

        Raises:
            GeometryError: an invalid file or description.
        """
        path = Path(self.urdf) if self.urdf else None
        return load({**(more or {}), **self.arguments}, path)

"""Reads and validates names, numbers and poses in the elements of a URDF."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import numpy as np
from numpy.typing import NDArray

__all__ = ['GeometryError', 'attribute', 'check_link', 'check_materials', 'numbers', 'one_line',
           'pose']

Array = NDArray[np.float64]

#: The lengths of each shape: attribute and its count of numbers.
LENGTHS = {'box': {'size': 3}, 'cylinder': {'radius': 1, 'length': 1}, 'sphere': {'radius': 1}}


class GeometryError(ValueError):
    """An invalid robot description; the message is one line."""


def attribute(element: ElementTree.Element, key: str, what: str) -> str:
    """
    Return a required attribute.

    Raises:
        GeometryError: it is missing or empty; the message begins with ``what``.
    """
    value = element.get(key)
    if not value:
        raise GeometryError(f'{what}: <{element.tag}> without {key}')
    return value


def numbers(
    element: ElementTree.Element | None, key: str, default: str, what: str, count: int,
) -> Array:
    """
    Return the numbers of an attribute, float64 [count].

    Raises:
        GeometryError: another count, or not finite; the message begins with ``what``.
    """
    text = default if element is None else element.get(key, default)
    try:
        values = [float(word) for word in text.split()]
    except ValueError:
        values = []
    if len(values) != count or not all(map(math.isfinite, values)):
        wanted = 'a finite number' if count == 1 else f'{count} finite numbers'
        raise GeometryError(f'{what}: {key}={text!r} is not {wanted}')
    return np.array(values)


def pose(origin: ElementTree.Element | None, what: str) -> Array:
    """
    Return the pose of an ``<origin>``: position and fixed-axis roll, pitch, yaw; float64 [4, 4].

    Raises:
        GeometryError: invalid numbers.
    """
    xyz = numbers(origin, 'xyz', '0 0 0', f'{what}: origin', 3)
    rpy = numbers(origin, 'rpy', '0 0 0', f'{what}: origin', 3)
    (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
    result = np.eye(4)
    result[:3, :3] = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    result[:3, 3] = xyz
    return result


def check_link(link: ElementTree.Element) -> None:
    """
    Check a link's mass and shapes.

    Raises:
        GeometryError: a mass, inertia or length that is not positive, or invalid numbers.
    """
    name = f'link {link.get("name")}'
    inertial = link.find('inertial')
    if inertial is not None:
        pose(inertial.find('origin'), f'{name}: inertial')
        _positive(inertial.find('mass'), 'value', f'{name}: mass')
        for key in ('ixx', 'iyy', 'izz'):
            _positive(inertial.find('inertia'), key, f'{name}: inertia')
        for key in ('ixy', 'ixz', 'iyz'):
            numbers(inertial.find('inertia'), key, '0', f'{name}: inertia', 1)
    for shape in (*link.findall('visual'), *link.findall('collision')):
        pose(shape.find('origin'), f'{name}: {shape.tag}')
        for solid in shape.findall('geometry/*'):
            for key, count in LENGTHS.get(solid.tag, {}).items():
                _positive(solid, key, f'{name}: {solid.tag}', count)


def check_materials(robot: ElementTree.Element) -> None:
    """
    Check the colours.

    Raises:
        GeometryError: a colour that is not four numbers from 0 to 1, or one name for two colours.
    """
    seen: dict[str, list[float]] = {}
    for material in robot.iter('material'):
        color = material.find('color')
        if color is None:
            continue
        name = attribute(material, 'name', 'material')
        rgba = numbers(color, 'rgba', '', f'material {name}', 4).tolist()
        if not all(0.0 <= value <= 1.0 for value in rgba):
            raise GeometryError(
                f'material {name}: rgba={color.get("rgba")!r} is not allowed: from 0 to 1')
        if seen.setdefault(name, rgba) != rgba:
            raise GeometryError(f'material {name}: has two colours')


def one_line(error: BaseException) -> str:
    """Return an exception's message without line breaks."""
    return ' '.join(str(error).split()) or type(error).__name__


def _positive(
    element: ElementTree.Element | None, key: str, what: str, count: int = 1,
) -> None:
    """Raise if numbers are missing or not positive."""
    for value in numbers(element, key, '', what, count):
        if value <= 0.0:
            raise GeometryError(f'{what}: {key} {value:g} is not positive')

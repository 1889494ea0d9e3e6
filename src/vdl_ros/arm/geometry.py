"""Reads and validates names, numbers and poses in the elements of a URDF."""

from __future__ import annotations

import dataclasses
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xacro
from numpy.typing import NDArray

from vdl_ros.arm.joints import JOINTS
from vdl_ros.common.files import find_resource
from vdl_ros.common.settings import setting

__all__ = ['ArmGeometry', 'GeometryConfig', 'GeometryError', 'Joint', 'Positions', 'attribute',
           'check_link', 'check_materials', 'expand', 'load', 'numbers', 'one_line', 'parse',
           'pose', 'urdf_file']


Array = NDArray[np.float64]

#: The lengths of each shape: attribute and its count of numbers.
LENGTHS = {'box': {'size': 3}, 'cylinder': {'radius': 1, 'length': 1}, 'sphere': {'radius': 1}}


class GeometryError(ValueError):
    """An invalid robot description; the message is one line."""


def attribute(element: ElementTree.Element, key: str, what: str) -> str:
    """Return a required attribute.

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
    """Return the numbers of an attribute, float64 [count].

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
    """Return the pose of an ``<origin>`` (position, fixed-axis roll, pitch, yaw), float64 [4, 4].

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
    """Check a link's mass and shapes.

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
    """Check the colours.

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


#: float64 [5], rad, in the order of ``joints.JOINTS``.
Positions = NDArray[np.float64]

#: Frames that the rest of the package uses by name.
FRAMES = ('base_link', 'tool0', 'lamp', 'camera_target', 'camera_mount', 'camera_optical_frame')


# Compared by identity: == of arrays has no single result.
@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """One joint of the description.

    ``origin`` is the child's pose in the parent at position zero, float64 [4, 4], m. ``axis`` is a
    unit vector in the child, float64 [3]. ``lower``, ``upper`` are rad or m, ``velocity`` rad/s
    or m/s, ``effort`` N m or N. A joint with ``mimic`` has ``multiplier`` times that joint's
    position plus ``offset``.
    """

    name: str
    type: str
    parent: str
    child: str
    origin: NDArray[np.float64]
    axis: NDArray[np.float64]
    lower: float = 0.0
    upper: float = 0.0
    velocity: float = 0.0
    effort: float = 0.0
    mimic: str = ''
    multiplier: float = 1.0
    offset: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class ArmGeometry:
    """A validated robot description.

    ``urdf`` is its text, ``root`` its root link, ``joints`` every joint by name, parents before
    children.
    """

    urdf: str
    root: str
    joints: Mapping[str, Joint]

    @property
    def lower(self) -> Positions:
        """Return the lower limits of the motors' joints, float64 [5], rad."""
        return np.array([self.joints[name].lower for name in JOINTS])

    @property
    def upper(self) -> Positions:
        """Return the upper limits of the motors' joints, float64 [5], rad."""
        return np.array([self.joints[name].upper for name in JOINTS])

    @property
    def velocity(self) -> Positions:
        """Return the speeds of the motors' joints, float64 [5], rad/s."""
        return np.array([self.joints[name].velocity for name in JOINTS])

    @property
    def links(self) -> tuple[str, ...]:
        """Return the names of the links, which are the frames, parents before children."""
        return (self.root, *(joint.child for joint in self.joints.values()))


def urdf_file() -> Path:
    """Return the path of owi535.urdf.xacro in the installed package or the checkout.

    Raises:
        GeometryError: there is no such file.
    """
    try:
        return find_resource('urdf/owi535.urdf.xacro')
    except FileNotFoundError as error:
        raise GeometryError(str(error)) from error


def expand(arguments: Mapping[str, float | str] | None = None, path: Path | None = None) -> str:
    """Return the URDF text of a xacro file.

    Args:
        arguments: xacro arguments, such as a calibrated ``forearm_length``.
        path: the file; by default that of the package.

    Raises:
        GeometryError: no such file, broken XML, xacro that does not expand, or an unknown
            argument.
    """
    path = path or urdf_file()
    given = {name: str(value) for name, value in (arguments or {}).items()}
    try:
        text = path.read_text()
        known = {element.get('name') for element in ElementTree.fromstring(text)
                 if element.tag == '{http://www.ros.org/wiki/xacro}arg'}
        for name in given:
            if name not in known:
                raise GeometryError(f'{path.name}: no argument {name!r}')
        return str(xacro.process_file(str(path), mappings=given).toprettyxml(indent='  '))
    except GeometryError:
        raise
    # xacro raises many types, even NameError and SystemExit from a bad expression.
    except (Exception, SystemExit) as error:
        raise GeometryError(f'{path.name}: {one_line(error)}') from error


def load(
    arguments: Mapping[str, float | str] | None = None, path: Path | None = None,
) -> ArmGeometry:
    """Return the arm's geometry; arguments as of :func:`expand`.

    Raises:
        GeometryError: an invalid file or description.
    """
    return parse(expand(arguments, path))


def parse(urdf: str) -> ArmGeometry:
    """Return the geometry in a URDF text.

    Raises:
        GeometryError: broken XML, links that are no tree, a missing joint or frame of the arm, a
            mass or length that is not positive, invalid numbers, or a lower limit above the upper
            one.
    """
    try:
        robot = ElementTree.fromstring(urdf)
    except ElementTree.ParseError as error:
        raise GeometryError(f'URDF: {one_line(error)}') from error
    if robot.tag != 'robot':
        raise GeometryError(f'URDF: the root is <{robot.tag}>, not <robot>')
    links = [attribute(link, 'name', 'link') for link in robot.findall('link')]
    for name in links:
        if links.count(name) > 1:
            raise GeometryError(f'link {name}: declared twice')
    for link in robot.findall('link'):
        check_link(link)
    check_materials(robot)
    joints = [_joint(element) for element in robot.findall('joint')]
    root, ordered = _tree(links, joints)
    _check_arm(root, ordered)
    return ArmGeometry(urdf, root, ordered)


def _joint(element: ElementTree.Element) -> Joint:
    """Return the joint of a ``<joint>`` element."""
    name = attribute(element, 'name', 'joint')
    kind = attribute(element, 'type', f'joint {name}')
    if kind not in ('revolute', 'prismatic', 'fixed'):
        raise GeometryError(f'joint {name}: type {kind!r} is not revolute, prismatic or fixed')
    ends = {}
    for end in ('parent', 'child'):
        found = element.find(end)
        if found is None:
            raise GeometryError(f'joint {name}: no <{end}>')
        ends[end] = attribute(found, 'link', f'joint {name}')
    origin = pose(element.find('origin'), f'joint {name}')
    axis = numbers(element.find('axis'), 'xyz', '1 0 0', f'joint {name}: axis', 3)
    length = float(np.linalg.norm(axis))
    if length == 0.0:
        raise GeometryError(f'joint {name}: the axis is 0 0 0')
    joint = Joint(name, kind, ends['parent'], ends['child'], origin, axis / length)
    if kind == 'fixed':
        return joint
    limit = element.find('limit')
    if limit is None:
        raise GeometryError(f'joint {name}: no <limit>')
    values: dict[str, Any] = {
        key: float(numbers(limit, key, '0', f'joint {name}: limit', 1)[0])
        for key in ('lower', 'upper', 'velocity', 'effort')}
    if values['lower'] >= values['upper']:
        raise GeometryError(
            f'joint {name}: lower limit {values["lower"]:g} is not below the upper, '
            f'{values["upper"]:g}')
    if kind == 'revolute' and max(-values['lower'], values['upper']) > 2.0 * math.pi:
        raise GeometryError(
            f'joint {name}: limits {values["lower"]:g} and {values["upper"]:g} are more than '
            'one revolution')
    for key in ('velocity', 'effort'):
        if values[key] <= 0.0:
            raise GeometryError(f'joint {name}: {key} {values[key]:g} is not positive')
    mimic = element.find('mimic')
    if mimic is None:
        return dataclasses.replace(joint, **values)
    what = f'joint {name}: mimic'
    return dataclasses.replace(
        joint, **values, mimic=attribute(mimic, 'joint', what),
        multiplier=float(numbers(mimic, 'multiplier', '1', what, 1)[0]),
        offset=float(numbers(mimic, 'offset', '0', what, 1)[0]))


def _tree(links: list[str], joints: list[Joint]) -> tuple[str, dict[str, Joint]]:
    """Return the root and the joints by name, parents first."""
    parent_of: dict[str, str] = {}
    for joint in joints:
        for end in (joint.parent, joint.child):
            if end not in links:
                raise GeometryError(f'joint {joint.name}: no link {end!r}')
        if joint.child in parent_of:
            raise GeometryError(f'link {joint.child}: has two parents')
        parent_of[joint.child] = joint.parent
    roots = [link for link in links if link not in parent_of]
    if len(roots) != 1:
        raise GeometryError(
            'URDF: the links are no tree: ' + (
                f'roots {", ".join(roots)}' if roots else 'no link without a parent'))
    ordered: dict[str, Joint] = {}
    reached = {roots[0]}
    waiting = list(joints)
    while waiting:
        ready = [joint for joint in waiting if joint.parent in reached]
        if not ready:
            raise GeometryError(f'joint {waiting[0].name}: part of a loop')
        for joint in ready:
            if joint.name in ordered:
                raise GeometryError(f'joint {joint.name}: declared twice')
            ordered[joint.name] = joint
            reached.add(joint.child)
        waiting = [joint for joint in waiting if joint not in ready]
    return roots[0], ordered


def _check_arm(root: str, joints: Mapping[str, Joint]) -> None:
    """Raise GeometryError unless joints and frames are the arm's."""
    for name in JOINTS:
        if name not in joints:
            raise GeometryError(f'joint {name}: missing; the arm has {", ".join(JOINTS)}')
        if joints[name].type != 'revolute' or joints[name].mimic:
            raise GeometryError(f'joint {name}: a motor drives it, so it must be revolute')
    for joint in joints.values():
        if joint.type != 'fixed' and joint.name not in JOINTS and joint.mimic not in JOINTS:
            raise GeometryError(f'joint {joint.name}: neither has a motor nor mimics one that has')
    if root != FRAMES[0]:
        raise GeometryError(f'link {root}: the root must be {FRAMES[0]}')
    children = {joint.child for joint in joints.values()}
    for name in FRAMES[1:]:
        if name not in children:
            raise GeometryError(f'link {name}: missing')


@dataclasses.dataclass(frozen=True)
class GeometryConfig:
    """The arm's description: URDF file and xacro arguments."""

    urdf: str = setting('', 'Xacro or URDF file; empty: that of this package.')
    xacro_args: str = setting(
        '', 'Arguments of the xacro file, such as "forearm_length=0.115 hand_length=0.12".')

    @property
    def arguments(self) -> dict[str, str]:
        """Return the xacro arguments by name.

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
        """Return the geometry.

        Args:
            more: further xacro arguments; those of the user override them.

        Raises:
            GeometryError: an invalid file or description.
        """
        path = Path(self.urdf) if self.urdf else None
        return load({**(more or {}), **self.arguments}, path)

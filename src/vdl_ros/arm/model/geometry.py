"""The arm's geometry: expands, parses and validates urdf/owi535.urdf.xacro."""

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

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.urdf_elements import (
    GeometryError,
    attribute,
    check_link,
    check_materials,
    numbers,
    one_line,
    pose,
)
from vdl_ros.common.resources import find_resource

__all__ = [
    'ArmGeometry', 'GeometryError', 'Joint', 'Positions', 'expand', 'load', 'parse', 'urdf_file']

#: float64 [5], rad, in the order of ``joints.JOINTS``.
Positions = NDArray[np.float64]

#: Frames that the rest of the package uses by name.
FRAMES = ('base_link', 'tool0', 'lamp', 'camera_target', 'camera_mount', 'camera_optical_frame')


# Compared by identity: == of arrays has no single result.
@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """
    One joint of the description.

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
    """
    A validated robot description.

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
    """
    Return the path of owi535.urdf.xacro in the installed package or the checkout.

    Raises:
        GeometryError: there is no such file.
    """
    try:
        return find_resource('urdf/owi535.urdf.xacro')
    except FileNotFoundError as error:
        raise GeometryError(str(error)) from error


def expand(arguments: Mapping[str, float | str] | None = None, path: Path | None = None) -> str:
    """
    Return the URDF text of a xacro file.

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
    """
    Return the arm's geometry; arguments as of :func:`expand`.

    Raises:
        GeometryError: an invalid file or description.
    """
    return parse(expand(arguments, path))


def parse(urdf: str) -> ArmGeometry:
    """
    Return the geometry in a URDF text.

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

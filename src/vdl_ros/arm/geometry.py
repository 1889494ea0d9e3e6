"""The description of the arm: expands the xacro file, parses and checks the URDF.

Parsed by hand: nodes that only draw or drive the arm start sooner without MuJoCo, and a text that
comes over the graph reaches no other parser. Masses, collision shapes and mesh files are checked
by MuJoCo, where it simulates the arm.
"""

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
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import setting

#: float64 [5], rad, in the order of ``joints.JOINTS``.
Positions = NDArray[np.float64]

#: Frames that the rest of the package uses by name.
FRAMES = ('base_link', 'tool0', 'lamp', 'camera_target', 'camera_mount', 'camera_optical_frame')

#: Edge of the cube that tasks push and pick, m: the gripper opens 4.5 cm. Its colour, RGB.
EDGE, CUBE_COLOUR = 0.03, (0.75, 0.12, 0.12)
# Limits of a text that anybody may publish: characters, elements of a kind, and m or rad.
_MAX_TEXT, _MAX_ELEMENTS, _MAX_NUMBER = 1 << 20, 200, 100.0
#: What is drawn, and the attributes with its size.
SHAPES = {'box': ('size',), 'cylinder': ('radius', 'length'), 'sphere': ('radius',)}
_GREY = '0.5 0.5 0.5 1'


class GeometryError(ValueError):
    """An invalid robot description; the message is one line."""


# Compared by identity: == of arrays has no single result.
@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """One joint of the description.

    ``origin`` is the child's pose in the parent at position zero, float64 [4, 4], m. ``axis`` is a
    unit vector in the child, float64 [3]. ``lower``, ``upper`` are rad, ``velocity`` rad/s,
    ``effort`` N m. A joint with ``mimic`` has ``multiplier`` times that joint's position plus
    ``offset``.
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
class Shape:
    """What is seen of a link: a ``kind`` of :data:`SHAPES`, with the numbers of its attributes, m.

    A box has three; a cylinder is along z. ``size`` is float64 [1 to 3]; ``origin`` its pose in
    the link, float64 [4, 4], m; ``color`` RGBA, float64 [4], 0 to 1.
    """

    link: str
    kind: str
    size: NDArray[np.float64]
    origin: NDArray[np.float64]
    color: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class ArmGeometry:
    """A validated robot description.

    ``urdf`` is its text, ``root`` its root link, ``joints`` every joint by name, parents before
    children; ``shapes`` are its visual shapes but ``meshes`` ones, which are files. ``lower``,
    ``upper`` (rad), ``velocity`` (rad/s) and ``effort`` (N m) are those of the motors' joints,
    float64 [5].
    """

    urdf: str
    root: str
    joints: Mapping[str, Joint]
    shapes: tuple[Shape, ...] = ()
    meshes: int = 0

    @property
    def lower(self) -> Positions:
        return self._of_motors('lower')

    @property
    def upper(self) -> Positions:
        return self._of_motors('upper')

    @property
    def velocity(self) -> Positions:
        return self._of_motors('velocity')

    @property
    def effort(self) -> Positions:
        return self._of_motors('effort')

    @property
    def upright(self) -> Positions:
        """The pose nearest to all angles at 0, float64 [5], rad."""
        return np.zeros(len(JOINTS)).clip(self.lower, self.upper)

    def _of_motors(self, name: str) -> Positions:
        return np.array([getattr(self.joints[joint], name) for joint in JOINTS])

    @property
    def links(self) -> tuple[str, ...]:
        """Return the names of the links, which are the frames, parents before children."""
        return (self.root, *(joint.child for joint in self.joints.values()))


def expand(arguments: Mapping[str, float | str] | None = None, path: Path | None = None) -> str:
    """Return the URDF text of a xacro file, by default that of the package; or GeometryError.

    ``arguments`` are xacro arguments, such as a calibrated ``forearm_length``.
    """
    given = {name: str(value) for name, value in (arguments or {}).items()}
    try:
        path = path or find_resource('urdf/owi535.urdf.xacro')
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
        reason = ' '.join(str(error).split()) or type(error).__name__
        raise GeometryError(f'{path.name if path else "URDF"}: {reason}') from error


def load(
    arguments: Mapping[str, float | str] | None = None, path: Path | None = None,
) -> ArmGeometry:
    return parse(expand(arguments, path))


def parse(urdf: str) -> ArmGeometry:
    """Return the geometry in a URDF text; GeometryError: it is none of this arm."""
    if len(urdf) > _MAX_TEXT:
        raise GeometryError(f'URDF: {len(urdf)} characters are not allowed: at most {_MAX_TEXT}')
    try:
        robot = ElementTree.fromstring(urdf)
    # The two others: of an encoding that is not known, or has no letter of the text.
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GeometryError(f'URDF: {error}') from error
    if robot.tag != 'robot':
        raise GeometryError(f'URDF: the root is <{robot.tag}>, not <robot>')
    for tag in ('link', 'joint', 'link/visual', 'link/collision'):
        if (count := len(robot.findall(tag))) > _MAX_ELEMENTS:
            raise GeometryError(f'{tag}: {count} are not allowed: at most {_MAX_ELEMENTS}')
    links = [_attribute(link, 'name', 'link') for link in robot.findall('link')]
    for name in links:
        if links.count(name) > 1:
            raise GeometryError(f'link {name}: declared twice')
    root, joints = _tree(links, [_joint(element) for element in robot.findall('joint')])
    _check_arm(root, joints)
    shapes = _shapes(robot)
    meshes = robot.findall('link/visual/geometry/mesh')
    return ArmGeometry(urdf, root, joints, shapes, len(meshes))


def _shapes(robot: ElementTree.Element) -> tuple[Shape, ...]:
    # A material is named where it has its colour, and elsewhere only referred to.
    colors = {material.get('name'): material.find('color') for material in robot.iter('material')
              if material.find('color') is not None}
    found = []
    for link in robot.findall('link'):
        what = f'link {link.get("name")}: visual'
        for visual in link.findall('visual'):
            shapes = visual.findall('geometry/*')
            if len(shapes) != 1 or shapes[0].tag not in (*SHAPES, 'mesh'):
                raise GeometryError(f'{what}: no geometry of {", ".join(SHAPES)} or mesh')
            shape = shapes[0]
            if shape.tag == 'mesh':
                continue
            size = np.concatenate([
                _numbers(shape, key, '', f'{what}: {shape.tag}', 3 if key == 'size' else 1)
                for key in SHAPES[shape.tag]])
            if size.min() <= 0.0:
                raise GeometryError(f'{what}: {shape.tag}: {size.min():g} is not positive')
            color = visual.find('material/color')
            if color is None:
                material = visual.find('material')
                color = colors.get(None if material is None else material.get('name'))
            found.append(Shape(
                str(link.get('name')), shape.tag, size,
                _pose(visual.find('origin'), f'{what}: origin'),
                _numbers(color, 'rgba', _GREY, f'{what}: color', 4)))
    return tuple(found)


def _attribute(element: ElementTree.Element | None, key: str, what: str) -> str:
    value = None if element is None else element.get(key)
    if not value:
        raise GeometryError(f'{what}: no {key}')
    return value


def _numbers(
    element: ElementTree.Element | None, key: str, default: str, what: str, count: int = 1,
) -> NDArray[np.float64]:
    text = default if element is None else element.get(key, default)
    try:
        values = np.array([float(word) for word in text.split()])
    except ValueError:
        values = np.zeros(0)
    if len(values) != count or not (np.abs(values) <= _MAX_NUMBER).all():
        wanted = 'a number' if count == 1 else f'{count} numbers'
        raise GeometryError(
            f'{what}: {key}={quoted(text)} is not {wanted} of at most {_MAX_NUMBER:g}')
    return values


def _joint(element: ElementTree.Element) -> Joint:
    name = _attribute(element, 'name', 'joint')
    what = f'joint {name}'
    kind = _attribute(element, 'type', what)
    if kind not in ('revolute', 'fixed'):
        raise GeometryError(f'{what}: type {kind!r} is not revolute or fixed')
    parent, child = (_attribute(element.find(end), 'link', f'{what}: {end}')
                     for end in ('parent', 'child'))
    axis = _numbers(element.find('axis'), 'xyz', '1 0 0', f'{what}: axis', 3)
    length = float(np.linalg.norm(axis))
    if length == 0.0:
        raise GeometryError(f'{what}: the axis is 0 0 0')
    joint = Joint(
        name, kind, parent, child, _pose(element.find('origin'), f'{what}: origin'), axis / length)
    if kind == 'fixed':
        return joint
    limit = element.find('limit')
    if limit is None:
        raise GeometryError(f'{what}: no <limit>')
    values: dict[str, Any] = {key: float(_numbers(limit, key, '0', f'{what}: limit')[0])
                              for key in ('lower', 'upper', 'velocity', 'effort')}
    lower, upper = values['lower'], values['upper']
    if lower >= upper:
        raise GeometryError(f'{what}: lower limit {lower:g} is not below the upper, {upper:g}')
    if max(-lower, upper) > 2.0 * math.pi:
        raise GeometryError(f'{what}: limits {lower:g} and {upper:g} are more than one revolution')
    for key in ('velocity', 'effort'):
        if values[key] <= 0.0:
            raise GeometryError(f'{what}: {key} {values[key]:g} is not positive')
    if (mimic := element.find('mimic')) is not None:
        what = f'{what}: mimic'
        values['mimic'] = _attribute(mimic, 'joint', what)
        values |= {key: float(_numbers(mimic, key, default, what)[0])
                   for key, default in (('multiplier', '1'), ('offset', '0'))}
    return dataclasses.replace(joint, **values)


def _pose(origin: ElementTree.Element | None, what: str) -> NDArray[np.float64]:
    """Return the pose of an ``<origin>`` (position, fixed-axis roll, pitch, yaw)."""
    rpy = _numbers(origin, 'rpy', '0 0 0', what, 3)
    (cr, cp, cy), (sr, sp, sy) = np.cos(rpy), np.sin(rpy)
    result = np.eye(4)
    result[:3, :3] = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    result[:3, 3] = _numbers(origin, 'xyz', '0 0 0', what, 3)
    return result


def _tree(links: list[str], joints: list[Joint]) -> tuple[str, dict[str, Joint]]:
    """Return the root and the joints by name, parents first."""
    parents: dict[str, str] = {}
    for joint in joints:
        for end in (joint.parent, joint.child):
            if end not in links:
                raise GeometryError(f'joint {joint.name}: no link {end!r}')
        if joint.child in parents:
            raise GeometryError(f'link {joint.child}: has two parents')
        parents[joint.child] = joint.parent
    roots = [link for link in links if link not in parents]
    if len(roots) != 1:
        raise GeometryError('URDF: the links are no tree: ' + (
            f'roots {", ".join(roots)}' if roots else 'no link without a parent'))
    ordered: dict[str, Joint] = {}
    reached = {roots[0]}
    while waiting := [joint for joint in joints if joint.child not in reached]:
        ready = [joint for joint in waiting if joint.parent in reached]
        if not ready:
            raise GeometryError(f'joint {waiting[0].name}: part of a loop')
        for joint in ready:
            if joint.name in ordered:
                raise GeometryError(f'joint {joint.name}: declared twice')
            ordered[joint.name] = joint
        reached |= {joint.child for joint in ready}
    return roots[0], ordered


def _check_arm(root: str, joints: Mapping[str, Joint]) -> None:
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
        """Return the xacro arguments by name; GeometryError: a word without a name or value."""
        found = {}
        for word in self.xacro_args.split():
            name, equals, value = word.partition('=')
            if not (name and equals and value):
                raise GeometryError(f'xacro_args: {word!r} is not allowed: name=value')
            found[name] = value
        return found

    def load(self, more: Mapping[str, float | str] | None = None) -> ArmGeometry:
        """Return the geometry, as :func:`load`; arguments of the user override ``more``."""
        return load({**(more or {}), **self.arguments}, Path(self.urdf) if self.urdf else None)

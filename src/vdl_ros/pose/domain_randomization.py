"""Render frames of the arm in a simulated scene with randomised looks.

Textures are made once, and materials are exchanged frame by frame: a randomised frame costs as
much as a plain one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from vdl_ros.arm.geometry import ArmGeometry, Positions
from vdl_ros.arm.simulation import render
from vdl_ros.arm.simulation.render import ArmRenderer, camera_matrix
from vdl_ros.arm.simulation.scene import build_scene
from vdl_ros.pose.frames import SPLITS

#: Materials with a randomised colour.
MATERIALS = ('arm/yellow', 'arm/black', 'arm/grey', 'arm/pad', 'table', 'floor')
#: Patterns for table, floor and walls.
TEXTURES = 48
#: Objects on the table.
PROPS = 6
_PATTERN = 128  # pixels
# Visible and hidden: MuJoCo shows groups 0 to 2.
_SHOWN, _HIDDEN = 2, 4
_WALL_M, _WALL_HEIGHT_M = 2.2, 1.6
_FIELD_OF_VIEW = 0.75


class RandomizedScene:
    """Draws frames of the arm; the same arguments give the same picture to the byte.

    It is one in a process, used by the thread that made it, and raises errors as ``ArmRenderer``.
    """

    def __init__(self, geometry: ArmGeometry, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.scene = build_scene(geometry, field_of_view=_FIELD_OF_VIEW, furnish=_furnish)
        self._renderer = ArmRenderer(self.scene, width, height)
        model = self.scene.model
        self._plain = {name: np.array(getattr(model, name)) for name in (
            'mat_rgba', 'mat_specular', 'mat_shininess', 'geom_matid', 'geom_group', 'geom_pos',
            'geom_quat', 'geom_size', 'geom_rgba', 'light_dir', 'light_diffuse', 'light_active',
            'cam_fovy')}
        head = model.vis.headlight
        self._plain_head = np.array(head.ambient), np.array(head.diffuse)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Return the intrinsic matrix of the last frame, float64 [3, 3], pixels."""
        return camera_matrix(self.scene, self.width, self.height)

    def draw(self, frame: 'Frame') -> NDArray[np.uint8]:
        """Return the picture of a frame, RGB, uint8 [height, width, 3]."""
        look = frame.look
        model = self.scene.model
        for name, plain in self._plain.items():
            getattr(model, name)[:] = plain
        render.place_camera(model, *frame.camera, look.get('camera_roll', 0.0))
        render.set_field_of_view(model, look.get('field_of_view', _FIELD_OF_VIEW))
        self._set_lights(look)
        self._set_materials(look)
        self._set_props(look)
        return self._renderer.render(frame.positions, bool(look.get('lamp', 0.0)))

    def close(self) -> None:
        self._renderer.close()

    def _set_lights(self, look: Mapping[str, float]) -> None:
        model = self.scene.model
        factor = look.get('brightness', 1.0)
        ambient, diffuse = self._plain_head
        if 'ambient' in look:
            ambient = np.full(3, look['ambient'])
        if 'headlight' in look:
            diffuse = np.full(3, look['headlight'])
        render.set_headlight(model, ambient * factor, diffuse * factor)
        for name in ('key', 'fill'):
            rgb, direction = model.light(name).diffuse, None
            if f'{name}_x' in look:
                rgb = np.array(_rgb_of(look, name))
                direction = [-look[f'{name}_{axis}'] for axis in 'xyz']
            render.set_light(model, name, direction=direction, rgb=rgb * factor)

    def _set_materials(self, look: Mapping[str, float]) -> None:
        model = self.scene.model
        for name in MATERIALS:
            rgb = _rgb_of(look, name) if f'{name}_r' in look else model.mat(name).rgba[:3]
            shiny = name.startswith('arm/')
            render.set_color(
                model, name, rgb, specular=look.get('specular') if shiny else None,
                shininess=look.get('shininess') if shiny else None)
        for name, key in (('table_top', 'table_texture'), ('floor', 'floor_texture'),
                          *((f'wall_{number}', 'wall_texture') for number in range(4))):
            if key in look:
                geom = model.geom(name)
                geom.matid[:] = model.mat(f'pattern_{look[key]:.0f}').id
                if key == 'wall_texture':
                    geom.group[:] = _SHOWN

    def _set_props(self, look: Mapping[str, float]) -> None:
        model = self.scene.model
        for name in (f'prop_{number}' for number in range(PROPS)):
            if f'{name}_x' not in look:
                continue
            geom = model.geom(name)
            size = [look[f'{name}_size_{axis}'] for axis in 'xyz']
            # A cylinder's height is its second number, a sphere's radius its first.
            height = size[{mujoco.mjtGeom.mjGEOM_BOX: 2, mujoco.mjtGeom.mjGEOM_CYLINDER: 1}.get(
                geom.type[0], 0)]
            yaw = look[f'{name}_yaw'] / 2.0
            geom.group[:], geom.size[:] = _SHOWN, size
            geom.pos[:] = look[f'{name}_x'], look[f'{name}_y'], height
            geom.quat[:] = np.cos(yaw), 0.0, 0.0, np.sin(yaw)
            geom.rgba[:3] = _rgb_of(look, name)


def _rgb_of(look: Mapping[str, float], name: str) -> list[float]:
    return [look[f'{name}_{channel}'] for channel in 'rgb']


def _furnish(spec: Any) -> None:
    """Add walls, objects and patterns, hidden until a look uses them."""
    random = np.random.default_rng(0)
    for number in range(TEXTURES):
        picture = _make_pattern(random)
        texture = spec.add_texture(
            name=f'pattern_{number}', type=mujoco.mjtTexture.mjTEXTURE_2D, width=_PATTERN,
            height=_PATTERN, nchannel=3)
        texture.data = picture.tobytes()
        material = spec.add_material(
            name=f'pattern_{number}', texrepeat=[random.integers(1, 6)] * 2)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = f'pattern_{number}'
    half = np.sqrt(0.5)
    for number, (x, y, quat) in enumerate((
            (-_WALL_M, 0, [half, 0, half, 0]), (_WALL_M, 0, [half, 0, -half, 0]),
            (0, -_WALL_M, [half, -half, 0, 0]), (0, _WALL_M, [half, half, 0, 0]))):
        size = [_WALL_HEIGHT_M, _WALL_M, 0.5] if x else [_WALL_M, _WALL_HEIGHT_M, 0.5]
        _add(spec, f'wall_{number}', mujoco.mjtGeom.mjGEOM_PLANE, size, [x, y, 0.5], quat)
    kinds = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER,
             mujoco.mjtGeom.mjGEOM_SPHERE)
    for number in range(PROPS):
        _add(spec, f'prop_{number}', kinds[number % len(kinds)], [0.02, 0.02, 0.02],
             [0, 0, -1], [1, 0, 0, 0])


def _add(spec: Any, name: str, kind: Any, size: list[float], place: list[float],
         quat: list[float]) -> None:
    spec.worldbody.add_geom(
        name=name, type=kind, size=size, pos=place, quat=quat, contype=0, conaffinity=0,
        group=_HIDDEN)


def _make_pattern(random: np.random.Generator) -> NDArray[np.uint8]:
    """Return stripes, a checkerboard, blots or noise in two colours, uint8 [size, size, 3]."""
    kind = random.integers(4)
    rows, columns = np.mgrid[:_PATTERN, :_PATTERN] / _PATTERN
    if kind == 0:
        turn = random.integers(4) * np.pi / 4.0
        share = np.sin(2 * np.pi * random.integers(1, 9)
                       * (rows * np.sin(turn) + columns * np.cos(turn))) > 0.0
    elif kind == 1:
        count = random.integers(2, 9)
        share = ((rows * count).astype(int) + (columns * count).astype(int)) % 2
    else:
        share = sum(_noise(random, 2**octave) / 2**octave for octave in range(1, 6))
        share = (share - share.min()) / np.ptp(share)
        share = share > 0.5 if kind == 2 else share
    one, other = random.uniform(0, 255, 3), random.uniform(0, 255, 3)
    mixed = one + (other - one) * np.asarray(share, np.float64)[..., None]
    return np.asarray(mixed + random.normal(0.0, 6.0, mixed.shape)).clip(0, 255).astype(np.uint8)


def _noise(random: np.random.Generator, cells: int) -> NDArray[np.float64]:
    """Return smooth noise with so many cells a side, float64 [size, size]."""
    grid = random.normal(size=(cells + 1, cells + 1))
    place = np.linspace(0.0, cells, _PATTERN, endpoint=False)
    low = place.astype(int)
    share = place - low
    share = share * share * (3.0 - 2.0 * share)
    rows = grid[low] + (grid[low + 1] - grid[low]) * share[:, None]
    return np.asarray(rows[:, low] + (rows[:, low + 1] - rows[:, low]) * share)


#: Names of all values that a look may have.
LOOK = (
    'brightness', 'ambient', 'headlight', 'lamp', 'specular', 'shininess', 'camera_roll',
    'field_of_view', 'table_texture', 'floor_texture', 'wall_texture',
    *(f'{material}_{channel}' for material in MATERIALS for channel in 'rgb'),
    *(f'{light}_{part}' for light in ('key', 'fill') for part in 'xyzrgb'),
    *(f'prop_{number}_{part}' for number in range(PROPS)
      for part in ('x', 'y', 'yaw', 'size_x', 'size_y', 'size_z', 'r', 'g', 'b')))
#: Range of the camera: distance from camera_target, m; elevation, rad; any azimuth.
DISTANCE = (0.55, 1.0)
ELEVATION = (0.0, math.pi / 3)
# How often the domain `random` omits each of the others: plain looks occur too.
_LEFT_OUT = 0.2
_ATTEMPTS = 1000

Look = dict[str, float]
Random = np.random.Generator


@dataclass(frozen=True)
class Frame:
    """One frame before it is drawn.

    Attributes:
        positions: float64 [5], rad.
        camera: distance (m), elevation, azimuth (rad).
        look: what is randomised, by the names of :data:`LOOK`.
    """

    positions: Positions
    camera: tuple[float, float, float]
    look: Look


def sample(
    split: str, seed: int, index: int, domain: str, geometry: ArmGeometry,
    fits: Callable[[Positions], bool] = lambda positions: True,
) -> Frame:
    """Sample one frame.

    Args:
        split: one of ``frames.SPLITS``.
        domain: one of ``frames.DOMAINS``.
        fits: whether positions, float64 [5], rad, are free of collisions; others are resampled.
    """
    # The look has its own random stream: poses are the same in every domain.
    pose, style = (np.random.default_rng(each) for each in np.random.SeedSequence(
        [SPLITS[split], seed, index]).spawn(2))
    distance, elevation = pose.uniform(*DISTANCE), pose.uniform(*ELEVATION)
    azimuth = pose.uniform(-math.pi, math.pi)
    for _ in range(_ATTEMPTS):
        positions = pose.uniform(geometry.lower, geometry.upper)
        if fits(positions):
            break
    else:
        raise RuntimeError(f'frame {index}: no pose of {_ATTEMPTS} fits')
    look: Look = {}
    for name, change in _CHANGES.items():
        if domain == name or (domain == 'random' and style.random() >= _LEFT_OUT):
            look |= change(style)
    return Frame(positions, (float(distance), float(elevation), float(azimuth)), look)


def _color(random: Random) -> Look:
    look: Look = {}
    for material in MATERIALS:
        rgb = random.uniform(0.0, 1.0, 3)
        if material == 'arm/black' and random.random() < 0.6:
            rgb *= 0.3
        look |= _rgb_look(material, rgb)
    return look


def _light(random: Random) -> Look:
    """Sample positions, strengths and tints of the lights, and how materials reflect them."""
    look: Look = {'ambient': random.uniform(0.08, 0.45), 'headlight': random.uniform(0.0, 0.4),
                  'lamp': float(random.random() < 0.25), 'specular': random.uniform(0.0, 0.8),
                  'shininess': random.uniform(0.1, 0.9)}
    for light, strongest in (('key', 0.75), ('fill', 0.4)):
        azimuth, height = random.uniform(-math.pi, math.pi), random.uniform(0.25, 1.3)
        look |= {f'{light}_x': math.cos(azimuth) * math.cos(height),
                 f'{light}_y': math.sin(azimuth) * math.cos(height),
                 f'{light}_z': math.sin(height)}
        tint = random.uniform(0.75, 1.0, 3) * random.uniform(0.1, strongest)
        look |= _rgb_look(light, tint)
    return look


def _texture(random: Random) -> Look:
    """Sample patterns of table, floor and walls, and objects on the table."""
    look: Look = {'table_texture': float(random.integers(TEXTURES)),
                  'floor_texture': float(random.integers(TEXTURES)),
                  'wall_texture': float(random.integers(TEXTURES))}
    for number in range(int(random.integers(0, PROPS + 1))):
        away, where = random.uniform(0.2, 0.45), random.uniform(-math.pi, math.pi)
        prop = {'x': away * math.cos(where), 'y': away * math.sin(where),
                'yaw': random.uniform(-math.pi, math.pi)}
        prop |= {f'size_{axis}': size for axis, size in zip(
            'xyz', random.uniform(0.008, 0.045, 3), strict=True)}
        look |= {f'prop_{number}_{key}': value for key, value in prop.items()}
        look |= _rgb_look(f'prop_{number}', random.uniform(0.0, 1.0, 3))
    return look


def _rgb_look(name: str, values: np.ndarray) -> Look:
    return {f'{name}_{channel}': float(value)
            for channel, value in zip('rgb', values, strict=True)}


_CHANGES: dict[str, Callable[[Random], Look]] = {
    'brightness': lambda random: {
        'brightness': float(np.exp(random.uniform(math.log(0.35), math.log(1.7))))},
    'color': _color, 'light': _light,
    'camera': lambda random: {'camera_roll': random.uniform(-0.12, 0.12),
                              'field_of_view': random.uniform(0.66, 0.86)},
    'texture': _texture}

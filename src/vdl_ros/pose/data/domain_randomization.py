"""
Domain randomisation: sample a frame's arm pose, camera pose and look from its number.

Frame ``index`` of a data set depends only on (split, seed, index) and the domain, so a capture
can be resumed, and a test set has no frame of a training set.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vdl_ros.arm.model.geometry import ArmGeometry, Positions
from vdl_ros.pose.data.randomized_scene import MATERIALS, PROPS, TEXTURES

__all__ = ['DISTANCE', 'DOMAINS', 'ELEVATION', 'SPLITS', 'Frame', 'sample']

#: What is randomised besides the poses of arm and camera.
DOMAINS = ('basic', 'brightness', 'color', 'light', 'camera', 'texture', 'random')
#: Numbers of the splits, as parts of the seed.
SPLITS = {'train': 1, 'test': 2, 'validation': 3}
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
    """
    One frame before it is drawn.

    ``positions`` is float64 [5], rad; distance in m, elevation and azimuth in rad; ``look`` holds
    the arguments of ``RandomizedScene.draw``.
    """

    index: int
    positions: Positions
    distance: float
    elevation: float
    azimuth: float
    look: Look


def sample(
    split: str, seed: int, index: int, domain: str, geometry: ArmGeometry,
    fits: Callable[[Positions], bool] = lambda positions: True,
) -> Frame:
    """
    Sample one frame.

    Args:
        split: one of :data:`SPLITS`.
        seed: of the data set.
        index: of the frame.
        domain: one of :data:`DOMAINS`.
        geometry: of the arm, for its joint limits.
        fits: whether positions, float64 [5], rad, are free of collisions; others are resampled.

    Raises:
        KeyError: no such split.
        ValueError: no such domain.
        RuntimeError: no pose fits.
    """
    if domain not in DOMAINS:
        raise ValueError(f'domain: {domain!r} is not allowed: one of {", ".join(DOMAINS)}')
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
    return Frame(index, positions, float(distance), float(elevation), float(azimuth), look)


def _brightness(random: Random) -> Look:
    """Sample the brightness of the scene."""
    return {'brightness': float(np.exp(random.uniform(math.log(0.35), math.log(1.7))))}


def _color(random: Random) -> Look:
    """Sample the colours of arm, table and floor."""
    look: Look = {}
    for material in MATERIALS:
        rgb = random.uniform(0.0, 1.0, 3)
        if material == 'arm/black' and random.random() < 0.6:
            rgb *= 0.3
        look |= _rgb(material, rgb)
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
        look |= _rgb(light, tint)
    return look


def _camera(random: Random) -> Look:
    """Sample the camera's roll and field of view."""
    return {'camera_roll': random.uniform(-0.12, 0.12),
            'field_of_view': random.uniform(0.66, 0.86)}


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
        look |= _rgb(f'prop_{number}', random.uniform(0.0, 1.0, 3))
    return look


def _rgb(name: str, values: np.ndarray) -> Look:
    return {f'{name}_{channel}': float(value)
            for channel, value in zip('rgb', values, strict=True)}


_CHANGES: dict[str, Callable[[Random], Look]] = {
    'brightness': _brightness, 'color': _color, 'light': _light, 'camera': _camera,
    'texture': _texture}

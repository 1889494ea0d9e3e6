"""The file of a calibration, YAML: what was measured, and the settings that follow from it.

``driver``, ``simulation`` and ``controller`` hold settings by their names; a setting that was not
measured is missing and keeps its default. Nothing else can be set by a file.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.arm.control.controller import ControllerConfig
from vdl_ros.arm.driver.driver import SafetyConfig, UsbConfig
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.common.files import write_text
from vdl_ros.common.plain_yaml import YamlError, read_yaml
from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import Scalar, SettingError, build, setting, settings_of, suggestion

SCHEMA = 'vdl_ros/arm_calibration/1'
UNITS = {'angle': 'rad', 'time': 's', 'speed': 'rad/s'}
_HEADER = ('# An arm, measured by `ros2 run vdl_ros calibrate`; taken by `ros2 launch vdl_ros\n'
           '# arm.launch.py arm_calibration:=FILE`. See docs/calibration.md.\n')
# Larger files are not of this package, bytes.
_MAX_BYTES = 100_000

#: Settings that a file may have, by section.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    'driver': (*(f'{name}_sign' for name in JOINTS),
               *(f'{name}_max_run_time' for name in JOINTS)),
    'simulation': (*(f'{name}_speed' for name in JOINTS), 'dead_zone', 'start_delay',
                   'time_constant', 'load_slowdown', 'sag', 'command_delay'),
    'controller': ('response_time',),
}
_SETTINGS = settings_of(UsbConfig, SafetyConfig, SimulationConfig, ControllerConfig)


@dataclasses.dataclass(frozen=True)
class MeasuredJoint:
    """What was measured of a joint; NaN: it could not be."""

    sign: int = setting(0, 'As the setting of the driver.', minimum=-1, maximum=1)
    speed_forward: float = setting(
        math.nan, 'Without load.', minimum=0.001, maximum=20.0, unit='rad/s')
    speed_backward: float = setting(
        math.nan, 'Without load.', minimum=0.001, maximum=20.0, unit='rad/s')
    delay: float = setting(
        math.nan, 'From a command to its effect.', minimum=0.0, maximum=3.0, unit='s')
    start_delay: float = setting(
        math.nan, 'How much longer a start takes.', minimum=0.0, maximum=3.0, unit='s')
    dead_zone: float = setting(
        math.nan, 'Play of the gears.', minimum=0.0, maximum=0.5, unit='rad')
    load_slowdown: float = setting(
        math.nan, 'Share of the speed that the stretched arm takes.', minimum=0.0, maximum=0.9)
    sag: float = setting(
        math.nan, 'Deflection under the stretched arm.', minimum=0.0, maximum=0.5, unit='rad')


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A measured arm.

    ``feedback`` is what measured it, ``joints`` what was measured of each; ``driver``,
    ``simulation`` and ``controller`` are settings by name, see :data:`SECTIONS`.
    """

    feedback: str
    joints: Mapping[str, MeasuredJoint]
    driver: Mapping[str, Scalar]
    simulation: Mapping[str, Scalar]
    controller: Mapping[str, Scalar]

    @property
    def settings(self) -> dict[str, Scalar]:
        return {**self.driver, **self.simulation, **self.controller}

    @property
    def velocities(self) -> dict[str, float]:
        """Return the arguments of the description that are measured speeds, rad/s."""
        return {f'{name}_velocity': float(self.simulation[f'{name}_speed'])
                for name in JOINTS if f'{name}_speed' in self.simulation}


def write(path: Path, calibration: Calibration) -> None:
    joints = {name: {key: _rounded(value) for key, value in dataclasses.asdict(joint).items()
                     if not (isinstance(value, float) and math.isnan(value))}
              for name, joint in calibration.joints.items()}
    sections = {section: {key: _rounded(value) for key, value in getattr(
        calibration, section).items()} for section in SECTIONS}
    content = {'schema': SCHEMA, 'units': UNITS, 'feedback': calibration.feedback,
               'joints': joints, **sections}
    write_text(path, _HEADER + yaml.safe_dump(content, sort_keys=False))


def read(path: Path | str) -> Calibration:
    """Return the calibration in a file; or SettingError, one line."""
    try:
        return _calibration(read_yaml(Path(path), _MAX_BYTES))
    except (YamlError, SettingError) as error:
        raise SettingError(f'arm_calibration: {path}: {error}') from None


def _calibration(content: Any) -> Calibration:
    entries = _mapping('the file', content, {
        'schema', 'units', *(field.name for field in dataclasses.fields(Calibration))})
    for name, expected in (('schema', SCHEMA), ('units', UNITS)):
        if entries.get(name) != expected:
            raise SettingError(f'{name}: {quoted(entries.get(name))} is not {expected!r}')
    feedback = entries.get('feedback')
    if feedback not in ('truth', 'camera'):
        raise SettingError(f'feedback: {quoted(feedback)} is not allowed: truth or camera')
    joints = {}
    for name, values in _mapping('joints', entries.get('joints'), JOINTS).items():
        try:
            joints[name] = build(MeasuredJoint, _mapping(name, values, settings_of(MeasuredJoint)))
        except SettingError as error:
            raise SettingError(f'joints.{name}.{error}') from None
    sections = {}
    for section, allowed in SECTIONS.items():
        found = _mapping(section, entries.get(section), allowed)
        try:
            sections[section] = {
                name: _SETTINGS[name].check(value) for name, value in found.items()}
        except SettingError as error:
            raise SettingError(f'{section}.{error}') from None
    signs = {f'joints.{name}.sign': each.sign for name, each in joints.items()} | {
        f'driver.{name}': value for name, value in sections['driver'].items()
        if name.endswith('_sign')}
    for name, value in signs.items():
        if value == 0:
            raise SettingError(f'{name}: 0 is not allowed: -1 or 1')
    return Calibration(feedback, joints, **sections)


def _mapping(what: str, value: Any, allowed: Any) -> dict[str, Any]:
    """Return ``value`` if it is a mapping with these names only."""
    if not isinstance(value, dict):
        raise SettingError(f'{what}: {quoted(value)} is not a mapping')
    for name in value:
        if name not in allowed:
            hint = suggestion(name, allowed) if isinstance(name, str) else ''
            raise SettingError(f'{what}: {quoted(name)} is not allowed here{hint}')
    return value


def _rounded(value: Scalar) -> Scalar:
    return round(value, 5) if isinstance(value, float) else value

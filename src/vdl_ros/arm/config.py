"""What a user can say about the simulated arm and the trajectory controller."""

from __future__ import annotations

import dataclasses

from vdl_ros.settings import SettingError, setting

__all__ = ['ControllerConfig', 'SimulationConfig']


@dataclasses.dataclass(frozen=True)
class SimulationConfig:
    """The simulated arm: how its motors, its gears and its cable behave."""

    timestep: float = setting(
        0.004, 'One step of the physics.', minimum=0.0005, maximum=0.008, unit='s')
    base_speed: float = setting(
        0.0, 'Speed of the base; 0 takes the one of the URDF.', minimum=0.0, unit='rad/s')
    shoulder_speed: float = setting(
        0.0, 'Speed of the shoulder without load; 0 takes the one of the URDF.', minimum=0.0,
        unit='rad/s')
    elbow_speed: float = setting(
        0.0, 'Speed of the elbow without load; 0 takes the one of the URDF.', minimum=0.0,
        unit='rad/s')
    wrist_speed: float = setting(
        0.0, 'Speed of the wrist without load; 0 takes the one of the URDF.', minimum=0.0,
        unit='rad/s')
    gripper_speed: float = setting(
        0.0, 'Speed of each finger; 0 takes the one of the URDF.', minimum=0.0, unit='rad/s')
    speed_variation: float = setting(
        0.05, 'At every reset, each speed is drawn anew from so far around its value, as a share '
        'of it.', minimum=0.0, maximum=0.9)
    dead_zone: float = setting(
        0.02, 'Play of the gears: how far a motor turns after a reversal before its joint does.',
        minimum=0.0, maximum=0.5, unit='rad')
    start_delay: float = setting(
        0.02, 'Time until a motor that is switched on begins to turn.', minimum=0.0, maximum=1.0,
        unit='s')
    time_constant: float = setting(
        0.03, 'Time in which a motor gains, or loses, 63 % of its speed.', minimum=0.0,
        maximum=1.0, unit='s')
    load_slowdown: float = setting(
        0.2, 'Share of its speed that a joint loses when it lifts the arm stretched out, and '
        'gains when it lowers it.', minimum=0.0, maximum=0.9)
    sag: float = setting(
        0.01, 'How far a joint gives way under the arm stretched out; its gears hold the rest.',
        minimum=0.001, maximum=0.1, unit='rad')
    command_delay: float = setting(
        0.01, 'Time from a command to the motors, as over USB.', minimum=0.0, maximum=2.0,
        unit='s')


@dataclasses.dataclass(frozen=True)
class ControllerConfig:
    """The trajectory controller: motors that are on or off follow joint positions."""

    start_band: float = setting(
        0.030, 'A motor is switched on when its joint will be farther from its target than this.',
        minimum=0.001, maximum=1.0, unit='rad')
    stop_band: float = setting(
        0.008, 'A motor is switched off when its joint will come to rest nearer than this.',
        minimum=0.0, maximum=1.0, unit='rad')
    goal_tolerance: float = setting(
        0.040, 'At the end every joint must be measured nearer to its target than this.',
        minimum=0.001, maximum=1.0, unit='rad')
    path_tolerance: float = setting(
        0.12, 'The trajectory waits while a joint is farther behind than this.',
        minimum=0.001, maximum=3.0, unit='rad')
    response_time: float = setting(
        0.06, 'Time from a command until the motor does it: cable, start and coasting.',
        minimum=0.0, maximum=2.0, unit='s')
    stale_after: float = setting(
        0.3, 'Motors are off while the newest measurement is older than this.', minimum=0.01,
        maximum=10.0, unit='s')
    goal_timeout: float = setting(
        3.0, 'A trajectory is given up when nothing has come nearer for this long.',
        minimum=0.1, maximum=60.0, unit='s')

    def __post_init__(self) -> None:
        """
        Check what depends on each other.

        Raises:
            SettingError: bands in the wrong order; the message names them.
        """
        for less, more in (('stop_band', 'start_band'), ('start_band', 'goal_tolerance'),
                           ('start_band', 'path_tolerance')):
            if getattr(self, less) >= getattr(self, more):
                raise SettingError(
                    f'{less}: {getattr(self, less):g} is not allowed: less than {more}, '
                    f'{getattr(self, more):g}')

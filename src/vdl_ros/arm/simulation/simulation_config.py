"""Settings of the simulated arm: motors, gears and cable."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting

__all__ = ['SimulationConfig']


@dataclasses.dataclass(frozen=True)
class SimulationConfig:
    """The simulated arm: motors, gears and cable."""

    timestep: float = setting(
        0.004, 'Time step of the physics.', minimum=0.0005, maximum=0.008, unit='s')
    base_speed: float = setting(
        0.0, 'Speed without load; 0: from the URDF.', minimum=0.0, unit='rad/s')
    shoulder_speed: float = setting(
        0.0, 'Speed without load; 0: from the URDF.', minimum=0.0, unit='rad/s')
    elbow_speed: float = setting(
        0.0, 'Speed without load; 0: from the URDF.', minimum=0.0, unit='rad/s')
    wrist_speed: float = setting(
        0.0, 'Speed without load; 0: from the URDF.', minimum=0.0, unit='rad/s')
    gripper_speed: float = setting(
        0.0, 'Speed of each finger; 0: from the URDF.', minimum=0.0, unit='rad/s')
    speed_variation: float = setting(
        0.05, 'Range of speeds drawn at each reset, as a share.', minimum=0.0, maximum=0.9)
    dead_zone: float = setting(
        0.02, 'Play of the gears after a reversal.', minimum=0.0, maximum=0.5, unit='rad')
    start_delay: float = setting(
        0.02, 'Time until a motor starts to turn.', minimum=0.0, maximum=1.0, unit='s')
    time_constant: float = setting(
        0.03, 'Time in which a motor gains or loses 63 % of its speed.', minimum=0.0, maximum=1.0,
        unit='s')
    load_slowdown: float = setting(
        0.2, 'Share of its speed that a joint loses when it lifts the stretched arm, and gains '
        'when it lowers it.', minimum=0.0, maximum=0.9)
    sag: float = setting(
        0.01, 'Deflection of a joint under the stretched arm.', minimum=0.001, maximum=0.1,
        unit='rad')
    command_delay: float = setting(
        0.01, 'Delay of commands, as over USB.', minimum=0.0, maximum=2.0, unit='s')

"""Settings of the node ``sim_arm``: pace, publishing rate, start pose."""

from __future__ import annotations

import dataclasses

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.common.settings import SettingError, setting

__all__ = ['SimArmConfig']


@dataclasses.dataclass(frozen=True)
class SimArmConfig:
    """The node ``sim_arm``."""

    real_time_factor: float = setting(
        1.0, 'Simulated seconds per second, as far as the processor allows.', minimum=0.01,
        maximum=100.0)
    stepped: bool = setting(False, 'Time advances only by the service ~/step.')
    publish_clock: bool = setting(
        False, 'Publish simulated time on /clock, for nodes with use_sim_time.')
    joint_rate: float = setting(
        60.0, 'Rate of joint states, in simulated time.', minimum=1.0, maximum=250.0, unit='Hz')
    posed: bool = setting(False, 'Take pose and stamp from capture/pose: no time, no motors.')
    start_pose: str = setting(
        '', 'Start positions, such as "shoulder=0.4 elbow=-0.8", rad; others 0.')
    sim_seed: int = setting(0, 'Seed of all randomness.', minimum=0, maximum=2**31 - 1)

    @property
    def pose(self) -> dict[str, float]:
        """
        Return ``start_pose`` by joint, rad.

        Raises:
            SettingError: a word that is not joint=number.
        """
        found = {}
        for word in self.start_pose.split():
            name, _, value = word.partition('=')
            try:
                found[name] = float(value)
            except ValueError:
                raise SettingError(
                    f'start_pose: {word!r} is not allowed: joint=rad, joints are '
                    f'{", ".join(JOINTS)}') from None
        return found

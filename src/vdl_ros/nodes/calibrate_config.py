"""Settings of the program ``calibrate``."""

from __future__ import annotations

import dataclasses

from vdl_ros.arm.calibration.moves_config import BY_CAMERA, BY_TRUTH, MovesConfig
from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.common.settings import SettingError, setting, suggestion

__all__ = ['CalibrateConfig']


@dataclasses.dataclass(frozen=True)
class CalibrateConfig:
    """The program ``calibrate``."""

    output: str = setting('arm_calibration.yaml', 'File to write, or to replace.')
    feedback: str = setting(
        'truth', 'Joints are measured on arm/joint_states (truth) or arm/pose (camera).',
        choices=('truth', 'camera'))
    joints: str = setting('', 'Joints, such as "base,elbow"; empty: all that are measured.')
    reach: float = setting(
        0.0, f'How far a joint moves to each side; 0: {BY_TRUTH.reach:g} by truth, '
        f'{BY_CAMERA.reach:g} by camera.', minimum=0.0, maximum=1.0, unit='rad')
    rounds: int = setting(
        0, f'Repetitions; 0: {BY_TRUTH.rounds} by truth, {BY_CAMERA.rounds} by camera.',
        minimum=0, maximum=20)
    yes: bool = setting(False, 'Move the arm without asking, as --yes.')

    @property
    def moves(self) -> MovesConfig:
        """
        Return how far and how long joints move.

        Raises:
            SettingError: a reach too small to measure play.
        """
        found = BY_CAMERA if self.feedback == 'camera' else BY_TRUTH
        if 0.0 < self.reach < 0.2:
            raise SettingError(f'reach: {self.reach:g} is not allowed: at least 0.2, or 0')
        return dataclasses.replace(
            found, reach=self.reach or found.reach, rounds=self.rounds or found.rounds)

    @property
    def names(self) -> tuple[str, ...]:
        """
        Return the joints to calibrate.

        Raises:
            SettingError: an unknown joint.
        """
        names = tuple(word for word in self.joints.replace(',', ' ').split())
        for name in names:
            if name not in JOINTS:
                raise SettingError(f'joints: {name!r} is not allowed: some of '
                                   f'{", ".join(JOINTS)}{suggestion(name, JOINTS)}')
        return names or tuple(JOINTS)

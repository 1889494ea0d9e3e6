"""What a user can say about the camera: where its pictures come from and where it stands."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import SettingError, setting, settings_of

__all__ = ['SIMULATED', 'CameraConfig', 'CameraPlacement']

#: The source that is no file and no device.
SIMULATED = 'sim'
_SIMULATED_SIZE = (320, 240)
_SMALLEST = 8


@dataclasses.dataclass(frozen=True)
class CameraPlacement:
    """Where the camera stands about ``camera_target``; arguments of the URDF as well."""

    camera_distance: float = setting(
        0.75, 'How far the camera stands from the point above the base that it looks at.',
        minimum=0.1, maximum=5.0, unit='m')
    camera_elevation: float = setting(
        0.35, 'How high the camera stands above that point.', minimum=0.0, maximum=1.0472,
        unit='rad')
    camera_azimuth: float = setting(
        -0.8, 'How far the camera stands round the arm, from its front to its left.',
        minimum=-6.2832, maximum=6.2832, unit='rad')

    @property
    def arguments(self) -> dict[str, float]:
        """
        Return the xacro arguments by name, for ``GeometryConfig.load``.

        Only those that differ from the defaults, which the URDF has as well: a description that
        places its camera by itself needs none.
        """
        return {name: value for name, each in settings_of(type(self)).items()
                if (value := getattr(self, name)) != each.default}


@dataclasses.dataclass(frozen=True)
class CameraConfig:
    """The node ``camera``."""

    source: str = setting(
        SIMULATED, 'Where pictures come from: sim, a device such as /dev/video0, a video file, or '
        'a folder of images, which come in the order of their names.')
    rate: float = setting(
        30.0, 'Pictures a second at the most. A device or a simulation that gives fewer is not '
        'waited for; every picture of a file is shown, at this rate.', minimum=0.01,
        maximum=1000.0, unit='Hz')
    loop: bool = setting(
        True, 'Start a video or folder again at its end; otherwise the node says that the end was '
        'reached, stays and publishes nothing more.')
    image_width: int = setting(
        0, 'Width of the picture; 0: 320 of sim, else that of the source.', minimum=0,
        maximum=4096, unit='pixels')
    image_height: int = setting(
        0, 'Height of the picture; 0: 240 of sim, else that of the source.', minimum=0,
        maximum=4096, unit='pixels')
    field_of_view: float = setting(
        0.75, 'Angle from the upper to the lower edge of the simulated picture.', minimum=0.05,
        maximum=2.5, unit='rad')
    captured: bool = setting(
        False, 'Draw each frame that capture/scene asks for; only of sim.')
    calibration: str = setting(
        '', 'YAML file of a device, video or folder as camera_calibration writes it; without it '
        'camera_info says that the camera is not calibrated.')

    def __post_init__(self) -> None:
        """
        Check what depends on each other.

        Raises:
            SettingError: one of width and height without the other, a picture too small, or a
                calibration of the simulated camera.
        """
        size = (self.image_width, self.image_height)
        if size != (0, 0) and min(size) < _SMALLEST:
            raise SettingError(
                f'image_width, image_height: {size[0]} x {size[1]} is not allowed: '
                f'both at least {_SMALLEST}, or both 0')
        if self.calibration and self.source == SIMULATED:
            raise SettingError(
                f'calibration: {self.calibration!r} is not allowed: the simulated camera knows '
                'its own')

    @property
    def size(self) -> tuple[int, int] | None:
        """Return width and height of the picture, pixels; None: those of the source."""
        if self.image_width:
            return self.image_width, self.image_height
        return _SIMULATED_SIZE if self.source == SIMULATED else None

"""Settings of the camera: source and size of its images, and its placement."""

import dataclasses

from vdl_ros.common.settings import SettingError, setting, settings_of

#: The source that is the simulated arm.
SIMULATED = 'sim'
#: The transport of JPEG images.
COMPRESSED = 'compressed'
_SIMULATED_SIZE = (320, 240)
_MIN_SIDE = 8


@dataclasses.dataclass(frozen=True)
class CameraPlacement:
    """Placement of the camera relative to ``camera_target``; also arguments of the URDF."""

    camera_distance: float = setting(
        0.75, 'Distance of the camera from a point above the base.', minimum=0.1, maximum=5.0,
        unit='m')
    camera_elevation: float = setting(
        0.35, 'Elevation of the camera above that point.', minimum=0.0, maximum=1.0472, unit='rad')
    camera_azimuth: float = setting(
        -0.8, 'Azimuth of the camera about the arm, from its front to its left.', minimum=-6.2832,
        maximum=6.2832, unit='rad')

    @property
    def arguments(self) -> dict[str, float]:
        """The xacro arguments for ``GeometryConfig.load`` that differ from the URDF's defaults.

        A description with a fixed camera then needs no arguments.
        """
        return {name: value for name, each in settings_of(type(self)).items()
                if (value := getattr(self, name)) != each.default}


@dataclasses.dataclass(frozen=True)
class ImageTransportConfig:
    """The nodes that subscribe to the camera."""

    image_transport: str = setting(
        'raw', 'camera/image_raw, or JPEG on camera/image_raw/compressed, for a camera on '
        'another host.', choices=('raw', COMPRESSED))


@dataclasses.dataclass(frozen=True)
class CameraConfig:
    """The node ``camera``."""

    source: str = setting(
        SIMULATED, 'sim, a device such as /dev/video0, a video file, or a folder of images in '
        'the order of names.')
    rate: float = setting(
        30.0, 'Largest rate of a device or simulation; rate of a file or folder.', minimum=0.01,
        maximum=1000.0, unit='Hz')
    loop: bool = setting(True, 'Start a file or folder again at its end.')
    image_width: int = setting(
        0, 'Width of images; 0: 320 for sim, else that of the source.', minimum=0, maximum=4096,
        unit='pixels')
    image_height: int = setting(
        0, 'Height of images; 0: 240 for sim, else that of the source.', minimum=0, maximum=4096,
        unit='pixels')
    field_of_view: float = setting(
        0.75, 'Vertical field of view with sim.', minimum=0.05, maximum=2.5, unit='rad')

    def __post_init__(self) -> None:
        size = (self.image_width, self.image_height)
        if size != (0, 0) and min(size) < _MIN_SIDE:
            raise SettingError(
                f'image_width, image_height: {size[0]} x {size[1]} is not allowed: '
                f'both at least {_MIN_SIDE}, or both 0')

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of images, pixels; None: those of the source."""
        if self.image_width:
            return self.image_width, self.image_height
        return _SIMULATED_SIZE if self.source == SIMULATED else None

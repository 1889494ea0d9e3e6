"""Settings of the views: address, port, rates. Launch files read them."""

from dataclasses import dataclass

from vdl_ros.common.settings import setting


@dataclass(frozen=True)
class TrainingViewerConfig:
    """The node ``training_viewer``."""

    view_host: str = setting(
        '127.0.0.1', 'Address of the view. Who reaches it can watch with the token that is '
        'printed.')
    view_port: int = setting(8081, 'Port of the view; 0: any free one.', minimum=0, maximum=65535)


@dataclass(frozen=True)
class ViewConfig:
    """The node ``viewer``."""

    host: str = setting(
        '127.0.0.1', 'Address of the view. Who reaches it can move the arm with the token that '
        'is printed.')
    port: int = setting(8080, 'Port of the view; 0: any free one.', minimum=0, maximum=65535)
    view_rate: float = setting(
        20.0, 'Rate at which the arm is drawn.', minimum=1.0, maximum=60.0, unit='Hz')
    picture_rate: float = setting(
        10.0, 'Rate of camera images to browsers.', minimum=0.1, maximum=60.0, unit='Hz')

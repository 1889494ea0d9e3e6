"""Capture frames for the pose estimator; those of the simulated arm have labels."""

from dataclasses import dataclass

from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.camera.camera_config import CameraConfig
from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.common.settings import SettingError, select, setting
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.node_settings import CaptureConfig, ProcessConfig


@dataclass(frozen=True)
class Graph:
    """What is started, and how."""

    arm: str = setting('sim', 'Which arm: simulated, or real.', choices=('sim', 'real'))
    device: str = setting('/dev/video0', 'Camera of the real arm.')


SETTINGS = (CaptureConfig, GeometryConfig, ProcessConfig)
ARGUMENTS = [*launch_arguments.declare(Graph, *SETTINGS), launch_arguments.RECORD]


def start(context):
    given = launch_arguments.given(context, *SETTINGS)
    graph = select(Graph, launch_arguments.given(context, Graph))

    def node(name, *settings, **more):
        return launch_nodes.node(
            context, name, given, (*settings, ProcessConfig), 'capture', **more)

    if graph.arm == 'sim':
        try:
            check_drawing()
        except OpenGLError as error:
            raise SettingError(f'arm: sim: {error}') from error
        nodes = [node('capture', *SETTINGS[:-1])]
    else:
        nodes = [node('camera', CameraConfig, source=graph.device),
                 node('capture', *SETTINGS[:-1], labels=False)]
    return launch_nodes.watched([*nodes, *launch_nodes.recorder(context)])


def generate_launch_description():
    return launch_nodes.described('capture.launch.py', ARGUMENTS, SETTINGS, start, local=True)

"""Capture labeled frames of the simulated arm for the pose estimator."""

from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.common.settings import SettingError
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.node_settings import CaptureConfig, ProcessConfig

SETTINGS = (CaptureConfig, GeometryConfig, ProcessConfig)
ARGUMENTS = [*launch_arguments.declare(*SETTINGS), launch_arguments.RECORD]


def start(context):
    given = launch_arguments.given(context, *SETTINGS)
    try:
        check_drawing()
    except OpenGLError as error:
        raise SettingError(str(error)) from error
    return launch_nodes.watched([
        launch_nodes.node(context, 'capture', given, SETTINGS, 'capture'),
        *launch_nodes.recorder(context)])


def generate_launch_description():
    return launch_nodes.described('capture.launch.py', ARGUMENTS, SETTINGS, start, local=True)

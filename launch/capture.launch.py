"""Capture frames for the pose estimator; those of the simulated arm have labels."""

from launch.actions import DeclareLaunchArgument, RegisterEventHandler
from launch.event_handlers import OnProcessExit

from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.camera.camera_config import CameraConfig
from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.common.settings import Setting, SettingError
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.node_settings import CaptureConfig, ProcessConfig

ARM = Setting('arm', str, 'sim', 'Which arm: simulated, or real.', choices=('sim', 'real'))
DEVICE = Setting('device', str, '/dev/video0', 'Camera of the real arm.')
SETTINGS = (CaptureConfig, GeometryConfig, ProcessConfig)
ARGUMENTS = [
    *(DeclareLaunchArgument(each.name, default_value=str(each.default),
                            description=f'{each.doc} ({each.allowed})') for each in (ARM, DEVICE)),
    *launch_arguments.declare(*SETTINGS), launch_arguments.RECORD,
]


def start(context):
    """Start the nodes for these arguments."""
    given = launch_arguments.given(context, *SETTINGS)
    arm, device = (
        each.parse(context.launch_configurations[each.name]) for each in (ARM, DEVICE))

    def node(name, *settings, **more):
        return launch_nodes.node(
            context, name, given, (*settings, ProcessConfig), 'capture', **more)

    if arm == 'sim':
        try:
            check_drawing()
        except OpenGLError as error:
            raise SettingError(f'arm: sim: {error}') from error
        nodes = [node('capture', *SETTINGS[:-1])]
    else:
        nodes = [node('camera', CameraConfig, source=device),
                 node('capture', *SETTINGS[:-1], labels=False)]
    nodes += launch_nodes.recorder(context)
    return [*(RegisterEventHandler(OnProcessExit(
        target_action=each, on_exit=launch_nodes.end_all)) for each in nodes), *nodes]


def generate_launch_description():
    """Return the launch description."""
    return launch_nodes.described('capture.launch.py', ARGUMENTS, SETTINGS, start, local=True)

"""Play a trained policy on a robot: its contract, and a checkpoint or an ONNX file."""

from vdl_ros.common.files import unique_name
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.node_settings import BlackBoxConfig, RobotPolicyConfig

SETTINGS = (RobotPolicyConfig,)
ARGUMENTS = [*launch_arguments.declare(*SETTINGS, BlackBoxConfig), launch_arguments.RECORD]


def start(context):
    given = launch_arguments.given(context, *SETTINGS, node='play')
    play = launch_nodes.node(context, 'play', given, SETTINGS, unique_name())
    return [*launch_nodes.announced(context), *launch_nodes.watched([play]),
            *launch_nodes.recorder(context), *launch_nodes.black_box(context)]


def generate_launch_description():
    return launch_nodes.described('play.launch.py', ARGUMENTS, SETTINGS, start, local=True)

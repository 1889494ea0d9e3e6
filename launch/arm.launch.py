"""The arm, real or simulated: driver, controller, policy, camera and views, also under attack.

When one node ends, all nodes end and the motors are off: an incomplete graph must not move an arm.
"""

import json
from dataclasses import dataclass

import yaml
from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch.actions import LogInfo
from launch.substitutions import PathJoinSubstitution
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from vdl_ros.arm.calibration import calibration_file
from vdl_ros.arm.control.controller import ControllerConfig
from vdl_ros.arm.driver.driver import SafetyConfig, UsbConfig
from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.attacks.attack_config import NONE, AttackConfig, SurrogateConfig
from vdl_ros.camera.camera_config import CameraConfig, CameraPlacement, ImageTransportConfig
from vdl_ros.common.files import find_resource
from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.common.settings import SettingError, select, setting
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.node_settings import (
    BlackBoxConfig,
    PoseConfig,
    PoseModelConfig,
    ProcessConfig,
    SimArmConfig,
    ViewConfig,
    policy_file,
)


@dataclass(frozen=True)
class Graph:
    """What is started, and how."""

    arm: str = setting(
        'sim', 'The arm: simulated, on the USB, or none, to play a bag.',
        choices=('sim', 'real', 'none'))
    camera: str = setting(
        'auto', 'Source of images: sim, a device, a video file, a folder of images, or none; '
        'auto: sim with the simulated arm, /dev/video0 with the real one.')
    feedback: str = setting(
        'truth', 'Feedback of controller and policy: the true joint states of the simulated arm, '
        'or the estimates of the camera.', choices=('truth', 'camera'))
    arm_calibration: str = setting(
        '', 'File that `ros2 run vdl_ros calibrate` wrote: signs, speeds, delays, play and sag of '
        'the arm; other arguments override it; empty: none.')
    policy: str = setting(
        '', 'Policy that follows arm/target: checkpoint, .onnx file of export_policy, or name of '
        'one in this package; empty: none.')
    controller: bool = setting(True, 'Start the joint trajectory controller.')
    view: bool = setting(True, 'Show the arm in a browser, with buttons to move it.')
    pose: bool = setting(False, "Estimate the arm's pose from the camera's images.")
    rviz: bool = setting(False, 'Show the arm in rviz2, where that is installed.')


# Settings of each node; the camera's `source` is the argument `camera`.
NODES = {
    'arm_driver': (UsbConfig, SafetyConfig, ProcessConfig),
    'sim_arm': (SimArmConfig, SimulationConfig, SafetyConfig, GeometryConfig, ProcessConfig),
    'arm_controller': (ControllerConfig, GeometryConfig, ProcessConfig),
    'play': (ProcessConfig,),
    'camera': (CameraConfig, CameraPlacement, GeometryConfig, ProcessConfig),
    'viewer': (ViewConfig, ImageTransportConfig, ProcessConfig),
    'robot_state': (ProcessConfig,),
    'attacker': (AttackConfig, SurrogateConfig, PoseModelConfig, ImageTransportConfig,
                 ProcessConfig),
    'pose_estimator': (PoseModelConfig, PoseConfig, GeometryConfig, ImageTransportConfig,
                       ProcessConfig),
}
SETTINGS = tuple(dict.fromkeys(each for classes in NODES.values() for each in classes))
# With feedback of the camera: the topic of the simulated arm's true joint states.
TRUTH = [('arm/joint_states', 'arm/joint_truth')]
# Under attack: the images that the pose estimator receives.
ATTACKED = [('camera/image_raw', 'camera/image_attacked')]
# What config/rviz/arm.rviz names from the root; in a namespace it is of that arm.
RVIZ = ('robot_description', 'arm/trajectory_markers', 'arm/target', 'arm/emergency_stop_marker',
        'camera/image_raw')
# With a view a trajectory needs its stop button, s.
VIEWER_TIMEOUT = 1.0
ARGUMENTS = [
    *(each for each in launch_arguments.declare(Graph, *SETTINGS, BlackBoxConfig)
      if each.name not in ('source', 'joint_states')),
    launch_arguments.RECORD,
]


def start(context):
    given = launch_arguments.given(context, Graph, *SETTINGS)
    graph = select(Graph, given)
    if graph.arm_calibration:
        given = calibrated(given, graph.arm_calibration)
    by_camera = graph.feedback == 'camera'
    estimated = graph.pose or by_camera
    is_attacked = given.get('adversarial_mode', NONE) != NONE
    if is_attacked and not estimated:
        raise SettingError(f'adversarial_mode: {given["adversarial_mode"]!r} is not allowed '
                           'without feedback:=camera or pose:=true: it attacks the pose network')
    if given.get('publish_clock') and graph.arm == 'real':
        raise SettingError('publish_clock: true is not allowed with arm:=real: nodes would wait '
                           'for the time of a simulation')
    if graph.policy and graph.arm == 'none':
        raise SettingError(f'policy: {graph.policy!r} is not allowed with arm:=none')
    given['source'], notes = image_source(graph)
    placement = select(CameraPlacement, given).arguments
    description = select(GeometryConfig, given).load(placement).urdf
    text = ParameterValue(description, value_type=str)
    truth = {'remappings': TRUTH if by_camera else []}
    # Node, whether it is started, settings that the user may override, and other options.
    table = (
        ('sim_arm', graph.arm == 'sim', {}, truth),
        ('arm_driver', graph.arm == 'real', {}, {}),
        ('arm_controller', graph.arm != 'none' and graph.controller,
         (camera_feedback() if by_camera else {})
         | ({'viewer_timeout': VIEWER_TIMEOUT} if graph.view else {}), {}),
        ('play', graph.policy, {}, player(graph, given)),
        ('camera', given['source'] != 'none', {}, truth),
        ('attacker', is_attacked, {}, {}),
        # The attacker publishes images as they are.
        ('pose_estimator', estimated, {}, {'joint_states': by_camera} | (
            {'image_transport': 'raw', 'remappings': ATTACKED} if is_attacked else {})),
        ('robot_state', estimated, {}, {
            'name': 'estimated_state', 'source': 'pose', 'frame_prefix': 'estimated/',
            'robot_description': text}),
        ('viewer', graph.view, {}, {}))
    nodes = [robot_state(context, given, text), *(
        arm_node(context, name, defaults | given, **options)
        for name, started, defaults, options in table if started)]
    if graph.rviz:
        nodes.append(rviz(context))
    return [*notes, *launch_nodes.watched([*nodes, *launch_nodes.recorder(context)]),
            *(launch_nodes.black_box(context) if graph.arm != 'none' else [])]


def image_source(graph):
    source = graph.camera
    if source == 'auto':
        source = {'sim': 'sim', 'real': '/dev/video0', 'none': 'none'}[graph.arm]
    if source == 'sim':
        try:
            check_drawing()
        except OpenGLError as error:
            if graph.pose or graph.feedback == 'camera' or graph.camera == 'sim':
                raise SettingError(f'camera: sim: {error}') from error
            return 'none', [LogInfo(msg=f'starting without a camera: {error}')]
    return source, []


def arm_node(context, executable, given, **more):
    return launch_nodes.node(
        context, executable, given, NODES[executable], 'arm', **more,
        **simulated_time(given, executable))


def calibrated(given, path):
    """Return the settings of a calibration file, and of the user, who overrides it."""
    found = calibration_file.read(path)
    settings = found.settings | given
    if not given.get('urdf'):
        # Controller, frames and views take speeds from the description.
        words = [f'{name}={value}' for name, value in found.velocities.items()]
        settings['xacro_args'] = ' '.join([*words, given.get('xacro_args', '')]).strip()
    return settings


def player(graph, given):
    """Return the node's options: it follows targets, on an arm of this description."""
    own = {name: given[name] for name in ('urdf', 'xacro_args') if given.get(name)}
    return graph.policy and {
        'name': 'policy', 'robot': 'owi535', 'policy': str(policy_file(graph.policy)),
        'targets': True, 'task_arguments': json.dumps(own)}


def camera_feedback():
    text = find_resource('config/arm/camera_feedback.yaml').read_text()
    return yaml.safe_load(text)['/**']['ros__parameters']


def simulated_time(given, name):
    return {'use_sim_time': True} if given.get('publish_clock') and name != 'sim_arm' else {}


def robot_state(context, given, text):
    """Return robot_state_publisher where it is installed, or this package's replacement."""
    try:
        get_package_prefix('robot_state_publisher')
    except PackageNotFoundError:
        return arm_node(context, 'robot_state', given, robot_description=text)
    return launch_nodes.make_node(
        context, 'robot_state_publisher', package='robot_state_publisher',
        remappings=[('joint_states', 'arm/joint_states')],
        parameters=[{'robot_description': text} | simulated_time(given, 'robot_state')])


def rviz(context):
    """Return rviz2 with the arm, its camera, the estimated pose and the target."""
    try:
        get_package_prefix('rviz2')
    except PackageNotFoundError:
        raise SettingError('rviz: rviz2 is not installed: apt install ros-$ROS_DISTRO-rviz2, or '
                           'view:=true for the view in a browser') from None
    path = PathJoinSubstitution([FindPackageShare('vdl_ros'), 'config', 'rviz', 'arm.rviz'])
    return launch_nodes.make_node(
        context, 'rviz2', package='rviz2', arguments=['-d', path], from_root=RVIZ)


def generate_launch_description():
    return launch_nodes.described('arm.launch.py', ARGUMENTS, SETTINGS, start, local=True)

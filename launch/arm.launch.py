"""The arm, real or simulated: driver, controller, policy, camera and views, also under attack.

When one node ends, all nodes end and the motors are off: an incomplete graph must not move an arm.
"""

from functools import partial

import yaml
from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch.actions import DeclareLaunchArgument, LogInfo, RegisterEventHandler
from launch.event_handlers import OnProcessExit
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
from vdl_ros.common.settings import Setting, SettingError, select
from vdl_ros.ros import launch_arguments, launch_nodes
from vdl_ros.ros.node_settings import (
    PolicyConfig,
    PoseConfig,
    PoseModelConfig,
    ProcessConfig,
    SimArmConfig,
    ViewConfig,
)

# Settings of each node; the camera's `source` is the argument `camera`.
NODES = {
    'arm_driver': (UsbConfig, SafetyConfig, ProcessConfig),
    'sim_arm': (SimArmConfig, SimulationConfig, SafetyConfig, GeometryConfig, ProcessConfig),
    'arm_controller': (ControllerConfig, GeometryConfig, ProcessConfig),
    'policy': (PolicyConfig, GeometryConfig, ProcessConfig),
    'camera': (CameraConfig, CameraPlacement, GeometryConfig, ProcessConfig),
    'viewer': (ViewConfig, ImageTransportConfig, ProcessConfig),
    'robot_state': (ProcessConfig,),
    'attacker': (AttackConfig, SurrogateConfig, PoseModelConfig, ImageTransportConfig,
                 ProcessConfig),
    'pose_estimator': (PoseModelConfig, PoseConfig, ImageTransportConfig, ProcessConfig),
}
SETTINGS = tuple(dict.fromkeys(each for classes in NODES.values() for each in classes))
ARM = Setting('arm', str, 'sim', 'The arm: simulated, on the USB, or none, to play a bag.',
              choices=('sim', 'real', 'none'))
CAMERA = DeclareLaunchArgument(
    'camera', default_value='auto',
    description='Source of images: sim, a device, a video file, a folder of images, or none; '
                'auto: sim with the simulated arm, /dev/video0 with the real one.')
FEEDBACK = Setting(
    'feedback', str, 'truth', 'Feedback of controller and policy: the true joint states of the '
    'simulated arm, or the estimates of the camera.', choices=('truth', 'camera'))
CALIBRATION = DeclareLaunchArgument(
    'arm_calibration', default_value='',
    description='File that `ros2 run vdl_ros calibrate` wrote: signs, speeds, delays, play and '
                'sag of the arm; other arguments override it; empty: none.')
# With feedback of the camera: the topic of the simulated arm's true joint states.
TRUTH = [('arm/joint_states', 'arm/joint_truth')]
# Under attack: the images that the pose estimator receives.
ATTACKED = [('camera/image_raw', 'camera/image_attacked')]
# With a view a trajectory or a target needs its stop button, s.
VIEWER_TIMEOUT = 1.0
# Maximum age of the camera's estimates for a policy, s, as of camera_feedback.yaml.
STALE_AFTER = 0.5
SWITCHES = [
    Setting('controller', bool, True, 'Start the joint trajectory controller.'),
    Setting('view', bool, True, 'Show the arm in a browser, with buttons to move it.'),
    Setting('pose', bool, False, "Estimate the arm's pose from the camera's images."),
    Setting('rviz', bool, False, 'Show the arm in rviz2, where that is installed.'),
]
ARGUMENTS = [
    *(DeclareLaunchArgument(each.name, default_value=str(each.default).lower(),
                            description=f'{each.doc} ({each.allowed})')
      for each in (ARM, FEEDBACK, *SWITCHES)),
    CAMERA, CALIBRATION,
    *(each for each in launch_arguments.declare(*SETTINGS)
      if each.name not in ('source', 'joint_states')),
    launch_arguments.RECORD,
]


def start(context):
    """Return the nodes that the arguments select."""
    given = launch_arguments.given(context, *SETTINGS)
    if context.launch_configurations['arm_calibration']:
        given = calibrated(given, context.launch_configurations['arm_calibration'])
    arm = ARM.parse(context.launch_configurations['arm'])
    on = {each.name: each.parse(context.launch_configurations[each.name]) for each in SWITCHES}
    source = context.launch_configurations['camera']
    if source == 'auto':
        source = {'sim': 'sim', 'real': '/dev/video0', 'none': 'none'}[arm]
    by_camera = FEEDBACK.parse(context.launch_configurations['feedback']) == 'camera'
    is_attacked = given.get('adversarial_mode', NONE) != NONE
    if is_attacked and not (on['pose'] or by_camera):
        raise SettingError(f'adversarial_mode: {given["adversarial_mode"]!r} is not allowed '
                           'without feedback:=camera or pose:=true: it attacks the pose network')
    notes = []
    if source == 'sim':
        try:
            check_drawing()
        except OpenGLError as error:
            if on['pose'] or by_camera or context.launch_configurations['camera'] == 'sim':
                raise SettingError(f'camera: sim: {error}') from error
            source = 'none'
            notes.append(LogInfo(msg=f'starting without a camera: {error}'))
    given['source'] = source
    placement = select(CameraPlacement, given).arguments
    description = select(GeometryConfig, given).load(placement).urdf
    truth = TRUTH if by_camera else []
    node = partial(arm_node, context)
    nodes = [robot_state(context, given, description)]
    if arm == 'sim':
        nodes.append(node('sim_arm', given, remappings=truth))
    elif arm == 'real':
        nodes.append(node('arm_driver', given))
    if arm != 'none' and on['controller']:
        nodes.append(node('arm_controller', (camera_feedback() if by_camera else {})
                          | ({'viewer_timeout': VIEWER_TIMEOUT} if on['view'] else {}) | given))
    if given.get('policy'):
        if arm == 'none':
            raise SettingError(f'policy: {given["policy"]!r} is not allowed with arm:=none')
        given['policy'] = str(select(PolicyConfig, given).path)
        nodes.append(node('policy', (
            ({'policy_stale_after': STALE_AFTER} if by_camera else {})
            | ({'policy_viewer_timeout': VIEWER_TIMEOUT} if on['view'] else {}) | given)))
    if source != 'none':
        nodes.append(node('camera', given, remappings=truth))
    if is_attacked:
        nodes.append(node('attacker', given))
    if on['pose'] or by_camera:
        text = ParameterValue(description, value_type=str)
        # The attacker publishes images as they are.
        transport = {'image_transport': 'raw'} if is_attacked else {}
        nodes += [node('pose_estimator', given | transport, joint_states=by_camera,
                       remappings=ATTACKED if is_attacked else []),
                  node('robot_state', given, name='estimated_state', source='pose',
                       frame_prefix='estimated/', robot_description=text)]
    if on['view']:
        nodes.append(node('viewer', given))
    if on['rviz']:
        nodes.append(rviz(context))
    nodes += launch_nodes.recorder(context)
    watch = [RegisterEventHandler(OnProcessExit(
        target_action=each, on_exit=launch_nodes.end_all)) for each in nodes]
    return [*notes, *watch, *nodes]


def arm_node(context, executable, given, **more):
    """Return a node of this package with its settings from ``given``, and ``more``."""
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


def camera_feedback():
    """Return the controller's parameters for feedback of the camera."""
    text = find_resource('config/arm/camera_feedback.yaml').read_text()
    return yaml.safe_load(text)['/**']['ros__parameters']


def simulated_time(given, name):
    """Return the parameter use_sim_time if simulated time is published."""
    return {'use_sim_time': True} if given.get('publish_clock') and name != 'sim_arm' else {}


def robot_state(context, given, description):
    """Return robot_state_publisher where it is installed, or this package's replacement."""
    text = ParameterValue(description, value_type=str)
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
    return launch_nodes.make_node(context, 'rviz2', package='rviz2', arguments=['-d', path])


def generate_launch_description():
    """Return the launch description."""
    return launch_nodes.described('arm.launch.py', ARGUMENTS, SETTINGS, start, local=True)

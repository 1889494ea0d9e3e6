"""
The arm, real or simulated: its driver, its controller, a camera, and views.

A graph that has lost a part is not one to move an arm: when one node ends, all do, motors off.
"""

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch import LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
)
from launch.event_handlers import OnProcessExit
from launch.substitutions import EnvironmentVariable, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

from vdl_ros.arm.control.controller_config import ControllerConfig
from vdl_ros.arm.driver.driver_config import SafetyConfig, UsbConfig
from vdl_ros.arm.model.geometry_config import GeometryConfig
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.camera.camera_config import CameraConfig, CameraPlacement
from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.common.settings import Setting, SettingError, select
from vdl_ros.nodes.pose_estimator_config import PoseConfig
from vdl_ros.nodes.sim_arm_config import SimArmConfig
from vdl_ros.nodes.viewer_config import ViewConfig
from vdl_ros.ros import launch_arguments
from vdl_ros.ros.process_config import ProcessConfig

RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
# The settings of each node; `source` of the camera is the argument `camera`.
NODES = {
    'arm_driver': (UsbConfig, SafetyConfig, ProcessConfig),
    'sim_arm': (SimArmConfig, SimulationConfig, SafetyConfig, GeometryConfig, ProcessConfig),
    'arm_controller': (ControllerConfig, GeometryConfig, ProcessConfig),
    'camera': (CameraConfig, CameraPlacement, GeometryConfig, ProcessConfig),
    'viewer': (ViewConfig, ProcessConfig),
    'robot_state': (ProcessConfig,),
    'pose_estimator': (PoseConfig, ProcessConfig),
}
SETTINGS = tuple(dict.fromkeys(each for classes in NODES.values() for each in classes))
ARM = Setting('arm', str, 'sim', 'Which arm: simulated, on the USB, or none, for playing a bag.',
              choices=('sim', 'real', 'none'))
CAMERA = DeclareLaunchArgument(
    'camera', default_value='auto',
    description='Where pictures come from: sim, a device, a video file, a folder of images, or '
                'none; auto: sim with the simulated arm, /dev/video0 with the real one.')
FEEDBACK = Setting(
    'feedback', str, 'truth', 'What the controller goes by: the joint states of the twin, or the '
    'camera.', choices=('truth', 'camera'))
# With the camera for feedback: where the twin's own joint states go.
TRUTH = [('arm/joint_states', 'arm/joint_truth')]
# What the controller is told with the camera for feedback: it is less exact, and later.
BY_CAMERA = {'start_band': 0.06, 'stop_band': 0.02, 'goal_tolerance': 0.087,
             'path_tolerance': 0.25, 'stale_after': 0.5, 'goal_timeout': 5.0}
SWITCHES = [
    Setting('controller', bool, True, 'Follow joint trajectories.'),
    Setting('view', bool, True, 'Show the arm in a browser, with buttons to move it.'),
    Setting('pose', bool, False, "Read the arm's pose off the camera's pictures."),
    Setting('rviz', bool, False, 'Show the arm in rviz2, where that is installed.'),
]
ARGUMENTS = [
    *(DeclareLaunchArgument(each.name, default_value=str(each.default).lower(),
                            description=f'{each.doc} ({each.allowed})')
      for each in (ARM, FEEDBACK, *SWITCHES)),
    CAMERA,
    *(each for each in launch_arguments.declare(*SETTINGS)
      if each.name not in ('source', 'joint_states', 'captured', 'posed')),
    launch_arguments.RECORD,
]


def start(context):
    """Start what the arguments ask for."""
    launch_arguments.reject_unknown_arguments(
        context, 'arm.launch.py', [each.name for each in ARGUMENTS])
    given = launch_arguments.given(context, *SETTINGS)
    arm = ARM.parse(context.launch_configurations['arm'])
    on = {each.name: each.parse(context.launch_configurations[each.name]) for each in SWITCHES}
    source = context.launch_configurations['camera']
    if source == 'auto':
        source = {'sim': 'sim', 'real': '/dev/video0', 'none': 'none'}[arm]
    by_camera = FEEDBACK.parse(context.launch_configurations['feedback']) == 'camera'
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
    nodes = [robot_state(given, description)]
    if arm == 'sim':
        nodes.append(node('sim_arm', given, remappings=truth))
    elif arm == 'real':
        nodes.append(node('arm_driver', given))
    if arm != 'none' and on['controller']:
        tuned = {} if not by_camera else {
            name: value for name, value in BY_CAMERA.items() if name not in given}
        nodes.append(node('arm_controller', given, **tuned))
    if source != 'none':
        nodes.append(node('camera', given, remappings=truth))
    if on['pose'] or by_camera:
        text = ParameterValue(description, value_type=str)
        nodes += [node('pose_estimator', given, joint_states=by_camera),
                  node('robot_state', given, node_name='estimated_state', source='pose',
                       frame_prefix='estimated/', robot_description=text)]
    if on['view']:
        nodes.append(node('viewer', given))
    if on['rviz']:
        nodes.append(rviz())
    nodes += launch_arguments.recorder(context)
    watch = [RegisterEventHandler(OnProcessExit(
        target_action=each, on_exit=launch_arguments.end_all)) for each in nodes]
    return [*notes, *watch, *nodes]


def node(name, given, **more):
    """Return a node of this package with what was given of its settings, and ``more``."""
    return launch_arguments.node(
        name, given, NODES[name], 'arm', **more, **simulated_time(given, name))


def simulated_time(given, name):
    """Return the parameter by which a node lives in simulated time, if there is such a time."""
    return {'use_sim_time': True} if given.get('publish_clock') and name != 'sim_arm' else {}


def robot_state(given, description):
    """Return robot_state_publisher where the distribution has it, or our node in its place."""
    text = ParameterValue(description, value_type=str)
    try:
        get_package_prefix('robot_state_publisher')
    except PackageNotFoundError:
        return node('robot_state', given, robot_description=text)
    return Node(package='robot_state_publisher', executable='robot_state_publisher',
                output='screen', remappings=[('joint_states', 'arm/joint_states')],
                parameters=[{'robot_description': text} | simulated_time(given, 'robot_state')])


def rviz():
    """Return rviz2 with the arm, its camera, the estimated pose and the target."""
    try:
        get_package_prefix('rviz2')
    except PackageNotFoundError:
        raise SettingError('rviz: rviz2 is not installed here: apt install ros-$ROS_DISTRO-rviz2, '
                           'or view:=true for the view in a browser') from None
    path = PathJoinSubstitution([FindPackageShare('vdl_ros'), 'config', 'rviz', 'arm.rviz'])
    return Node(package='rviz2', executable='rviz2', output='screen', arguments=['-d', path])


def generate_launch_description():
    """Return the launch description."""
    return LaunchDescription([
        *ARGUMENTS,
        # Everything is on this machine unless told: shared memory serves for the pictures.
        SetEnvironmentVariable(RANGE, EnvironmentVariable(RANGE, default_value='LOCALHOST')),
        SetEnvironmentVariable('RCUTILS_CONSOLE_OUTPUT_FORMAT', '[{severity}] {message}'),
        OpaqueFunction(function=start),
    ])

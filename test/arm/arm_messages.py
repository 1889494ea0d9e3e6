"""What tests send to the arm's nodes."""

from builtin_interfaces.msg import Time
from geometry_msgs.msg import PointStamped
from sensor_msgs.msg import JointState

from vdl_ros.arm.joints import JOINTS
from vdl_ros.ros.messages.joint_messages import trajectory_message


def joints_now(node, positions=(0.0, 0.0, 0.0, 0.0, 0.0)):
    """Return positions of all joints, rad, that are measured now."""
    message = JointState(name=list(JOINTS), position=list(positions))
    message.header.stamp = node.get_clock().now().to_msg()
    return message


def target_at(place, frame='base_link'):
    message = PointStamped()
    message.header.frame_id = frame
    message.point.x, message.point.y, message.point.z = map(float, place)
    return message


def trajectory_after(after, node, names, points, times):
    """Return a trajectory that starts in ``after`` s."""
    message = trajectory_message(names, points, times)
    if after:
        start = node.get_clock().now().nanoseconds + int(after * 1e9)
        message.header.stamp = Time(sec=start // 10**9, nanosec=start % 10**9)
    return message

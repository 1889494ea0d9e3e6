"""Messages are decoded as rclpy serialises them; damaged ones are an error, never a crash."""

import contextlib

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from refusals import refusal
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Header

from vdl_ros.bags.messages import MessageError, decode, stamp_of
from vdl_ros.msg import MotorCommand

HEADER = Header(frame_id='camera', stamp=Time(sec=3, nanosec=7))
MESSAGES = {
    'sensor_msgs/msg/Image': Image(
        header=HEADER, height=2, width=3, encoding='rgb8', step=9, data=list(range(18))),
    'sensor_msgs/msg/CameraInfo': CameraInfo(
        header=HEADER, height=2, width=3, d=[0.1] * 5, k=[float(each) for each in range(9)]),
    'sensor_msgs/msg/JointState': JointState(
        header=HEADER, name=['base', 'elbow'], position=[1.0, -2.0]),
    'vdl_ros/msg/MotorCommand': MotorCommand(
        header=HEADER, sender='/teleop', base=1, shoulder=-1, gripper=1, lamp=-1),
}


def test_every_field_is_decoded_and_damaged_bytes_are_an_error_or_a_message():
    for type_name, sent in MESSAGES.items():
        data = serialize_message(sent)
        found = decode(data, type_name)
        assert stamp_of(found) == 3 * 10**9 + 7, type_name
        for name, kind in sent.get_fields_and_field_types().items():
            if '/' not in kind:
                np.testing.assert_array_equal(
                    getattr(found, name), getattr(sent, name), f'{type_name} {name}')
        for length in range(len(data) - 16):
            assert 'truncated or malformed' in refusal(
                MessageError, decode, data[:length], type_name)
        random = np.random.default_rng(0)
        for _ in range(200):
            changed = np.frombuffer(data, np.uint8).copy()
            changed[random.integers(0, len(changed), 4)] = random.integers(0, 256, 4)
            with contextlib.suppress(MessageError):
                decode(changed.tobytes(), type_name)

"""A policy of a program of its own, for ``play.launch.py policy:=external``; it needs only rclpy.

    python3 client.py --ros-args -r __ns:=/namespace_of_the_robot

A policy is a function of what was told (a dict) and the newest images (uint8 [H, W, 3], RGB, by
name), which returns actions, one for each step from the observation on, and the names of their
numbers. docs/external_policies.md has the messages.
"""

import json
import time
from functools import partial

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image
from std_msgs.msg import String

# A camera that is silent for longer, s, may be gone: without an answer the robot stops.
SILENT_S = 0.5


class Images:
    """The newest images by name, uint8 [H, W, 3], of topics that a policy needs."""

    def __init__(self, needs, clock=time.monotonic):
        self._needs, self._clock = needs, clock
        self.newest, self._arrived = {}, {}

    def add(self, name, message):
        data = np.frombuffer(message.data, np.uint8).reshape(message.height, message.step)
        found = data[:, :3 * message.width].reshape(message.height, message.width, 3)
        self.newest[name] = found[..., ::-1] if message.encoding == 'bgr8' else found
        self._arrived[name] = self._clock()

    @property
    def are_new(self):
        return all(name in self._arrived and self._clock() - self._arrived[name] < SILENT_S
                   for name in self._needs)


def serve(policy, needs=()):
    """Answer observations, of several that waited the newest, while the images are new.

    ``needs`` are names of images.
    """
    rclpy.init()
    node = rclpy.create_node('external_policy')
    answers = node.create_publisher(String, 'play/action', 1)
    images, subscribed, newest = Images(needs), {}, []

    def on_observation(message):
        told = json.loads(message.data)
        for name in set(needs) - set(subscribed):
            subscribed[name] = node.create_subscription(
                Image, told['images'][name], partial(images.add, name), qos_profile_sensor_data)
        newest[:] = [told]

    node.create_subscription(String, 'play/observation', on_observation, 1)
    try:
        while True:
            rclpy.spin_once(node, timeout_sec=0.1)
            if newest and images.are_new:
                told = newest.pop()
                actions, names = policy(told, images.newest)
                answers.publish(String(data=json.dumps(
                    {'id': told['id'], 'actions': np.asarray(actions).tolist(), 'names': names})))
    except (KeyboardInterrupt, ExternalShutdownException):
        pass


def to_middle(told, images):
    """Turn each joint of the OWI-535 to the middle, 0 rad, by motors that are -1, 0 or 1."""
    names = ['base', 'shoulder', 'elbow', 'wrist']
    joints = np.array([told['state'][name] or 0.0 for name in names])
    return [np.where(np.abs(joints) > 0.05, -np.sign(joints), 0.0)], names


if __name__ == '__main__':
    serve(to_middle)

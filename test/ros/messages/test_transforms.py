"""Rotations as quaternions; the frames themselves are tested with the node robot_state."""

import mujoco
import numpy as np
import pytest

from vdl_ros.ros.messages.transforms import quaternion


@pytest.mark.parametrize('seed', range(200))
def test_quaternions_are_those_of_mujoco(seed):
    random = np.random.default_rng(seed)
    wanted = random.normal(size=4)
    if seed % 4 == 0:
        wanted[random.integers(4)] = 0.0  # half turns, where a plain formula divides by 0
    wanted /= np.linalg.norm(wanted)
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, wanted)
    x, y, z, w = quaternion(rotation.reshape(3, 3))
    assert w >= 0.0
    assert abs(np.dot([w, x, y, z], wanted)) == pytest.approx(1.0)


@pytest.mark.parametrize('axis', np.eye(3).tolist())
def test_half_turns(axis):
    rotation = 2.0 * np.outer(axis, axis) - np.eye(3)
    assert np.abs(quaternion(rotation)) == pytest.approx([*axis, 0.0])

"""The MuJoCo model: what it takes from the URDF, and what it adds."""

import math
import xml.etree.ElementTree as ElementTree

import mujoco
import numpy as np
import pytest

from vdl_ros.arm.model.joints import JOINTS
from vdl_ros.arm.model.kinematics import Kinematics
from vdl_ros.arm.simulation.scene import PREFIX, build_scene


@pytest.fixture(scope='module')
def scene():
    return build_scene()


@pytest.fixture(scope='module')
def robot(scene):
    return ElementTree.fromstring(scene.geometry.urdf)


def test_limits_axes_and_masses_are_those_of_the_urdf(scene, robot):
    for joint in scene.geometry.joints.values():
        if joint.type != 'fixed':
            found = scene.model.joint(PREFIX + joint.name)
            assert found.range == pytest.approx([joint.lower, joint.upper])
            assert found.axis == pytest.approx(joint.axis)
    assert scene.model.njnt == len(JOINTS) + 1
    total = 0.0
    for link in robot.findall('link'):
        body = scene.model.body(PREFIX + link.get('name'))
        mass = link.find('inertial/mass')
        value = 0.0 if mass is None else float(mass.get('value'))
        assert body.mass[0] == pytest.approx(value)
        total += value
        if mass is not None:
            inertia = link.find('inertial/inertia')
            assert sorted(body.inertia) == pytest.approx(sorted(
                float(inertia.get(key)) for key in ('ixx', 'iyy', 'izz')))
    assert scene.model.body_mass.sum() == pytest.approx(total)


def test_every_shape_exists_once_and_only_visual_ones_are_drawn(scene, robot):
    model = scene.model
    arm = [index for index in range(model.ngeom)
           if model.body(model.geom_bodyid[index]).name.startswith(PREFIX)]
    touch = [index for index in arm if model.geom_contype[index]]
    see = [index for index in arm if not model.geom_contype[index]]
    assert len(touch) == len(robot.findall('.//collision')) > 0
    assert len(see) == len(robot.findall('.//visual')) > 0
    drawn = mujoco.MjvOption().geomgroup
    assert all(drawn[model.geom_group[index]] for index in see)
    assert not any(drawn[model.geom_group[index]] for index in touch)
    assert not any(model.geom_conaffinity[index] for index in see)
    names = {model.mat(model.geom_matid[index]).name for index in see}
    assert names == {PREFIX + material.get('name') for material in robot.iter('material')}


def test_arm_collides_with_table_and_itself_only(scene):
    data = mujoco.MjData(scene.model)
    for pose in ([0, 0, 0, 0, 0], [0, 0, 0, 0, scene.geometry.upper[4]], [1, 0.3, 0.5, 0.4, 0.1],
                 [-1, -0.5, 1.2, 0.9, 0]):
        scene.set_positions(data, np.array(pose))
        assert data.ncon == 0, pose
    touching = set()
    for pose in ([0, 1.2, 1.3, 0, 0], [0, 0, 2.75, 0.9, 0]):
        scene.set_positions(data, np.array(pose))
        for contact in data.contact:
            touching |= {scene.model.body(scene.model.geom_bodyid[geom]).name
                         for geom in contact.geom}
    assert {'world', 'arm/base_link', 'arm/hand'} <= touching


def test_load_is_the_torque_of_gravity_on_the_arm_stretched_out(scene, robot):
    geometry = scene.geometry
    kinematics = Kinematics(geometry)

    def energy(positions):
        poses = kinematics.poses(positions)
        total = 0.0
        for link in robot.findall('link'):
            inertial = link.find('inertial')
            if inertial is not None:
                centre = [float(word) for word in inertial.find('origin').get('xyz').split()]
                height = (poses[link.get('name')] @ [*centre, 1.0])[2]
                total += float(inertial.find('mass').get('value')) * 9.81 * height
        return total

    stretched = np.array([0.0, math.pi / 2, 0.0, 0.0, 0.0])
    for index in range(5):
        step = 1e-5 * np.eye(5)[index]
        torque = abs(energy(stretched + step) - energy(stretched - step)) / 2e-5
        assert scene.load[index] == pytest.approx(torque if torque > 0.01 else 0.0, rel=1e-3)
    assert (scene.load[1:4] > 0.02).all()
    assert scene.load[[0, 4]].tolist() == [0.0, 0.0]
    # The gear deflects by sag under it.
    stiffness = scene.stiffen(0.02)
    assert (scene.load / stiffness)[scene.load > 0.0] == pytest.approx(0.02)
    assert (stiffness > 0.0).all()

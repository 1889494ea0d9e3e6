"""Images of the simulated arm: content, projection, placement of the camera, appearance."""

import math

import mujoco
import numpy as np
import pytest
from projection import camera_pose, project

from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation import render
from vdl_ros.arm.simulation.render import ArmRenderer, camera_matrix
from vdl_ros.arm.simulation.scene import PREFIX, build_scene
from vdl_ros.common.opengl import OpenGLError

ZERO = np.zeros(5)
BENT = np.array([0.5, 0.4, 0.9, 0.5, 0.3])
SIZE = (160, 120)


@pytest.fixture
def scene():
    return build_scene()


@pytest.fixture
def renderer(scene):
    with ArmRenderer(scene, *SIZE) as renderer:
        yield renderer


def differ(one, other, by=20):
    """Return where two images differ, bool [height, width]."""
    return (np.abs(one.astype(int) - other.astype(int)) > by).any(axis=2)


def test_only_the_arm_changes_between_images_and_the_same_pose_gives_the_same(renderer, scene):
    straight, bent = renderer.render(ZERO).copy(), renderer.render(BENT).copy()
    changed = differ(straight, bent)
    assert changed.sum() > 300
    assert not changed[:, :20].any()
    assert not changed[:, -15:].any()
    opened = renderer.render([0, 0, 0, 0, 0.35])
    rows, _ = np.nonzero(differ(straight, opened))
    assert 0 < len(rows) < 300
    assert rows.max() < 40  # the gripper alone
    out = np.zeros((120, 160, 3), np.uint8)
    assert renderer.render(BENT, out=out) is out
    np.testing.assert_array_equal(out, bent)
    renderer.close()
    with ArmRenderer(scene, *SIZE) as other:
        np.testing.assert_array_equal(other.render(BENT), bent)


def test_projection_matches_the_image():
    scene = build_scene(field_of_view=0.9)
    model = scene.model
    # The pads become a little ball at tool0, in a colour that nothing else has; no other part of
    # the arm is drawn.
    poses = Kinematics(scene.geometry).poses(BENT)
    for index in range(model.ngeom):
        name = model.body(model.geom_bodyid[index]).name.removeprefix(PREFIX)
        if model.body(model.geom_bodyid[index]).name.startswith(PREFIX):
            model.geom_group[index] = 3
        if name.endswith('_finger') and model.geom_matid[index] == model.mat('arm/pad').id:
            model.geom_type[index] = mujoco.mjtGeom.mjGEOM_SPHERE
            model.geom_size[index] = 0.012
            model.geom_pos[index] = (np.linalg.inv(poses[name]) @ poses['tool0'][:, 3])[:3]
            model.geom_group[index] = 0
    render.set_color(model, 'arm/pad', [0, 0, 1], specular=0.0)
    with ArmRenderer(scene, 400, 300) as renderer:
        for camera in ((0.6, 0.0, 0.7, 0.0), (0.9, 1.0, 2.5, 0.3), (0.7, 0.5, -2.0, -0.5)):
            render.place_camera(model, *camera)
            image = renderer.render(BENT).astype(int)
            ball = (image[..., 2] > 2 * image[..., 0] + 20) & (image[..., 1] < image[..., 2] // 2)
            rows, columns = np.nonzero(ball)
            assert len(rows) > 30
            expected = project(scene, poses['tool0'][:3, 3], 400, 300)
            assert [columns.mean(), rows.mean()] == pytest.approx(expected, abs=0.5), camera


def test_pixels_are_square_and_a_turned_camera_turns_the_image(scene):
    render.set_field_of_view(scene.model, 0.4)
    matrix = camera_matrix(scene, 320, 200)
    assert matrix[0, 0] == matrix[1, 1] == pytest.approx(100 / math.tan(0.2))
    assert matrix[:2, 2].tolist() == [159.5, 99.5]
    # After a quarter turn counter-clockwise, what was up is at the left.
    render.place_camera(scene.model, 0.75, 0.0, 0.0, roll=math.pi / 2)
    column, row = project(scene, [0.0, 0.0, 0.3], 320, 240)
    assert column < 100
    assert row == pytest.approx(119.5)


def test_xacro_arguments_and_place_camera_agree(scene):
    for distance, elevation, azimuth in ((0.75, 0.35, -0.80), (0.5, 0.0, 0.0), (1.0, 1.0, 2.0)):
        described = build_scene(load({
            'camera_distance': distance, 'camera_elevation': elevation,
            'camera_azimuth': azimuth}))
        render.place_camera(scene.model, distance, elevation, azimuth)
        pose = camera_pose(scene)
        assert pose == pytest.approx(camera_pose(described), abs=1e-9)
        kinematics = Kinematics(described.geometry)
        assert pose == pytest.approx(kinematics.pose(ZERO, 'camera_optical_frame'), abs=1e-9)
        # From the target: so far, so high, so far round; it looks at the target, horizon level.
        offset = pose[:3, 3] - kinematics.pose(ZERO, 'camera_target')[:3, 3]
        assert offset / distance == pytest.approx([
            math.cos(elevation) * math.cos(azimuth), math.cos(elevation) * math.sin(azimuth),
            math.sin(elevation)])
        assert pose[:3, 2] == pytest.approx(-offset / distance)
        assert pose[2, 0] == pytest.approx(0.0, abs=1e-9)
        assert pose[2, 1] < 0.0  # y is down


def test_second_or_closed_renderer_raises(scene):
    with ArmRenderer(scene, *SIZE) as first, pytest.raises(RuntimeError, match='close it first'):
        ArmRenderer(scene, *SIZE)
    with pytest.raises(RuntimeError, match='the renderer is closed'):
        first.render(ZERO)
    first.close()
    with ArmRenderer(scene, 1000, 700) as big:  # larger than the scene was made for
        assert big.render(ZERO).shape == (700, 1000, 3)


def test_missing_opengl_raises_one_line(scene, monkeypatch):
    def fail(*_, **__):
        raise ImportError('Cannot initialize\na device')

    monkeypatch.setattr(mujoco, 'Renderer', fail)
    with pytest.raises(OpenGLError, match=r'^OpenGL \(mujoco.egl\): Cannot initialize a device$'):
        ArmRenderer(scene)
    monkeypatch.undo()
    with ArmRenderer(scene, *SIZE) as renderer:
        assert renderer.render(ZERO).std() > 20

"""Targets: free, reachable, uniform in space; twins: within their ranges, or as measured."""

import dataclasses

import numpy as np
import pytest

from vdl_ros.arm.calibration.calibration_file import Calibration, write
from vdl_ros.arm.geometry import load
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.simulation.scene import CollisionChecker, build_scene
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.owi535.arm_task import CUBE, HELD_OUT, INSIDE, NOMINAL, Workspace
from vdl_ros.envs.owi535.reach import ReachTask

CHECKER = CollisionChecker(build_scene())
GEOMETRY = CHECKER.scene.geometry
MEASURED = {'base_speed': 0.5, 'dead_zone': 0.04, 'command_delay': 0.3, 'load_slowdown': 0.0}


def test_poses_are_free_and_places_are_theirs_as_those_of_their_neighbours():
    for straight in (True, False):
        space = Workspace(CHECKER, straight=straight, count=3000)
        assert len(space.poses) > 1000
        assert not CHECKER.collides(space.poses).any()
        places = Kinematics(GEOMETRY).pose(space.poses)[:, :3, 3]
        assert np.abs(space.places - places).max() < 1e-12
        assert (space.poses >= GEOMETRY.lower).all()
        assert (space.poses <= GEOMETRY.upper).all()
        assert (space.poses[:, 3] == 0.0).all() == straight
    random = np.random.default_rng(0)
    indices = space.draw(random, 200)
    poses = space.neighbours(random, indices, 8)
    assert poses.shape == (200, 8, 5)
    assert np.array_equal(poses[:, 0], space.poses[indices])
    places = Kinematics(GEOMETRY).pose(poses.reshape(-1, 5))[:, :3, 3].reshape(200, 8, 3)
    cubes = np.floor(places / CUBE)
    assert (cubes == cubes[:, :1]).all()
    # Of places with several poses, not always the same.
    assert len(np.unique(poses.reshape(-1, 5), axis=0)) > 1.2 * len(np.unique(indices))


def test_drawn_places_are_uniform_in_space():
    space = Workspace(CHECKER)
    drawn = space.places[space.draw(np.random.default_rng(0), 40_000)]
    # In shells of equal thickness about the shoulder, before the arm, a density is flat.
    shoulder = np.array([0.0, 0.0, GEOMETRY.joints['base'].origin[2, 3]
                         + GEOMETRY.joints['shoulder'].origin[2, 3]])

    def densities(places):
        away = places - shoulder
        before = places[(np.abs(np.arctan2(away[:, 1], away[:, 0])) < 1.0) & (away[:, 2] > 0.02)]
        radius = np.linalg.norm(before - shoulder, axis=1)
        edges = np.linspace(0.15, 0.30, 6)
        return np.histogram(radius, edges)[0] / np.diff(edges**3)

    flat, crowded = densities(drawn), densities(space.places)
    assert flat.max() / flat.min() < 1.35
    assert crowded.max() / crowded.min() > 2.0


def test_twins_lie_within_their_ranges_and_held_out_ones_outside_of_the_others():
    for ranges in (INSIDE, HELD_OUT):
        twins = ranges.draw(np.random.default_rng(0), GEOMETRY, 2000)
        values = vars(twins.parameters) | {'age': twins.age, 'noise': twins.noise}
        values['speed'] = values['speed'] / GEOMETRY.velocity
        for name, drawn in values.items():
            assert len(drawn) == 2000
            counts = [((low <= drawn) & (drawn <= high)).mean()
                      for low, high in getattr(ranges, name)]
            assert sum(counts) == pytest.approx(1.0), name
            assert min(counts) > 0.3, name
            (low, high), = getattr(INSIDE, name)
            assert all(end <= low or begin >= high for begin, end in getattr(HELD_OUT, name)), name


def drawn(calibration, randomisation, count=200):
    task = ReachTask(count, randomisation=randomisation, calibration=str(calibration))
    task.reset(np.arange(count), np.random.default_rng(0))
    return task._twin.parameters


def test_twins_are_drawn_about_the_measured_arm(tmp_path):
    path = tmp_path / 'arm.yaml'
    write(path, Calibration('truth', {}, {}, MEASURED, {}))
    for ranges, name, low, high in (
            (INSIDE, 'inside', 0.8, 1.2), (HELD_OUT, 'held_out', 0.65, 1.35)):
        assert (ranges.speed[0][0], ranges.speed[-1][1]) == (low, high)
        twins = drawn(path, name)
        for values, nominal in (
                (twins.speed[:, 0], 0.5), (twins.speed[:, 1], load().velocity[1]),
                (twins.dead_zone, 0.04), (twins.command_delay, 0.3)):
            assert values.min() == pytest.approx(low * nominal, rel=0.05)
            assert values.max() == pytest.approx(high * nominal, rel=0.05)
        assert not twins.load_slowdown.any()
    exact = drawn(path, 'none', 2)
    assert exact.speed[0, 0] == pytest.approx(0.5)
    assert exact.command_delay.tolist() == pytest.approx([0.3, 0.3])
    path.write_text('')
    with pytest.raises(EnvError, match='arm_calibration: .*: the file: None is not a mapping'):
        drawn(path, 'none')


def test_the_nominal_twin_is_the_default_of_the_simulation():
    twins = NOMINAL.draw(np.random.default_rng(0), GEOMETRY, 2)
    assert twins.parameters.config(0) == dataclasses.replace(
        SimulationConfig(), speed_variation=0.0, **{
            f'{name}_speed': load().joints[name].velocity
            for name in ('base', 'shoulder', 'elbow', 'wrist', 'gripper')})
    assert not twins.age.any()
    assert not twins.noise.any()

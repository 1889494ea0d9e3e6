"""The task reach about a measured arm instead of the described one."""

import gymnasium
import numpy as np
import pytest

import vdl_ros.envs  # noqa: F401
from vdl_ros.arm.calibration.calibration_file import Calibration, write
from vdl_ros.arm.model.geometry import load
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.owi535.reach_task import ReachTask
from vdl_ros.envs.owi535.twin_ranges import HELD_OUT, INSIDE
from vdl_ros.envs.registration import REACH

MEASURED = {'base_speed': 0.5, 'dead_zone': 0.04, 'command_delay': 0.3, 'load_slowdown': 0.0}


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
    env = gymnasium.make_vec(REACH, 2, calibration=str(path))
    env.reset(seed=1)
    assert env.step(env.action_space.sample())[0] in env.observation_space
    path.write_text('')
    with pytest.raises(EnvError, match='arm_calibration: .*: the file: None is not a mapping'):
        drawn(path, 'none')

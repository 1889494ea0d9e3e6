"""The SO-101: its twin, its contracts and its environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from vdl_ros.arm.simulation.simulation import PoseError
from vdl_ros.envs.registration import SO101_PICK, SO101_REACH, register
from vdl_ros.envs.so101.twin import JOINTS, LOWER, UPPER, SO101Twin
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.robots.task import Measured, make_task

DOWN = np.array([0.0, -0.3, 0.4, 1.4, np.pi / 2, 0.7])


def joints_at(place, start):
    """Return positions that bring the tool to a place, [3], m, by the first four joints."""
    twin, found = SO101Twin(), start.copy()
    for _ in range(100):
        tool = twin.tool_at(found)
        nearer = np.stack([twin.tool_at(found + 1e-4 * each) - tool for each in np.eye(6)[:4]])
        step = np.linalg.pinv(nearer / 1e-4, rcond=0.02).T @ (place - tool)
        found[:4] = np.clip(found[:4] + np.clip(step, -0.1, 0.1), LOWER[:4], UPPER[:4])
    assert np.linalg.norm(twin.tool_at(found) - place) < 0.005
    return found


@pytest.mark.parametrize('name', [
    'so101', 'so101_sim', 'so101_pick', 'so101_positions', 'so101_positions_sim'])
def test_a_contract_has_the_limits_of_the_twin(name):
    contract = find_contract(name)
    limits = {each.name: (each.low, each.high) for each in contract.features}
    assert [limits[part.feature] for part in contract.actions.parts] == [
        *zip(LOWER, UPPER, strict=True)][:len(contract.actions.parts)]
    for part in contract.actions.parts:
        assert not part.position_of or limits[part.feature] == (part.low, part.high)


@pytest.mark.parametrize('env_id', [SO101_REACH, SO101_PICK])
def test_an_environment_is_one_of_gymnasium(env_id):
    register()
    env = gymnasium.make(env_id)
    assert env.spec.max_episode_steps == find_contract(env.unwrapped.robot).episode_steps
    check_env(env.unwrapped, skip_render_check=True)


def test_who_goes_to_the_target_and_stays_reaches_it():
    register()
    env = gymnasium.make(SO101_REACH)
    env.reset(seed=1)
    task, twin = env.unwrapped._task, env.unwrapped._twin
    joints, total, ended = joints_at(task.target, twin.joint_positions), 0.0, False
    while not ended:
        away = joints[:5] - twin.joint_positions[:5]
        _, reward, ended, truncated, info = env.step(np.clip(5.0 * away, -1, 1).astype(np.float32))
        total += reward
        assert not truncated
    assert info['is_success']
    assert total > 5.0


def test_a_persons_target_stays_in_the_next_episodes_and_is_within_reach():
    task, random = make_task(find_contract('so101_sim')), np.random.default_rng(1)
    values = dict.fromkeys(JOINTS[:5], 0.2)
    begun = Measured(values, {}, {'joints': 0.0}, 0.0, np.zeros((3, 5)))
    for _ in range(20):
        task.begin(begun, random)
        place = task.target
        task.aim(place, values)
        task.begin(begun, random)
        assert task.target is place
        task._is_asked = False
    with pytest.raises(ValueError, match='no pose that was tried comes nearer than 53 cm'):
        task.aim(np.array([1.0, 0.0, 0.2]), values)


@pytest.mark.parametrize('name', ['so101_positions_sim', 'so101_pick'])
def test_what_a_person_showed_was_to_get_where_it_ended(name):
    task = make_task(find_contract(name))
    values = {each.name: 0.1 for each in task.contract.features}
    end = Measured(values, {}, dict.fromkeys(task.contract.inputs, 0.0), 5.0, np.zeros((3, 6)))
    task.begin_demonstrated([end])
    place = SO101Twin().tool_at(np.array([values.get(each, 0.0) for each in JOINTS]))
    np.testing.assert_allclose(task.target, [0.1] * 3 if 'cube_x' in values else place)
    assert task.reward(end, end) >= 0.0
    assert task.distance == pytest.approx(0.0)


def test_a_command_of_some_joints_leaves_the_others_on_their_way():
    twin = SO101Twin()
    twin.command(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), 4.0)
    twin.command(np.zeros(5))
    twin.command(np.array([0.4, *[np.nan] * 5]), 1.0)
    twin.step(2.0)
    assert twin.joint_positions[[0, 5]] == pytest.approx([0.4, 0.5], abs=0.05)


def test_the_gripper_lifts_a_cube_and_holds_it_also_when_a_pose_is_refused():
    twin, cube = SO101Twin(cube=True), [0.2, 0.0, 0.0]
    above, around = (joints_at([0.2, 0.0, height], DOWN) for height in (0.08, 0.015))
    twin.reset(dict(zip(JOINTS, above, strict=True)), cube)
    grip = np.array([0, 0, 0, 0, 0, -0.7])
    for goal in (around, around + grip, above + grip):
        begin = twin.joint_positions
        for share in np.linspace(0.1, 1.0, 10):
            twin.command(begin + share * (goal - begin))
            twin.step(0.1)
    twin.step(3.0)
    assert twin.cube[2] == pytest.approx(0.08, abs=0.01)
    with pytest.raises(PoseError, match='not inside table'):
        twin.reset({'shoulder_lift': 1.0, 'wrist_flex': 0.9})
    assert twin.cube[2] == pytest.approx(0.08, abs=0.01)

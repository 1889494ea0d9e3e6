"""Bags of the arm, and data sets exported from them, as demonstrations of reaching."""

import shutil
import threading
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import yaml
from bag_files import MS, START_NS, BagBuilder, picture, stamp, write_bag
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Twist, Vector3
from gymnasium.spaces import Box, MultiDiscrete
from nav_msgs.msg import Odometry
from robot_contract import GOOD
from std_msgs.msg import Header

from vdl_ros.arm.geometry import load
from vdl_ros.arm.joints import JOINTS
from vdl_ros.arm.kinematics import Kinematics
from vdl_ros.bags.reader import EpisodeLabels
from vdl_ros.common import memory
from vdl_ros.common.images import pixels_of
from vdl_ros.demonstrations import loading
from vdl_ros.demonstrations.env_recorder import new_data_set
from vdl_ros.demonstrations.loading import load_demonstrations
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.owi535.reach import FEATURES
from vdl_ros.envs.registration import REACH, SO101_REACH
from vdl_ros.export.lerobot_reader import read_lerobot
from vdl_ros.rl.learning.demonstrations import Demonstrations
from vdl_ros.robots.contract_files import known_contracts, read_contract
from vdl_ros.robots.observer import Observer, frame
from vdl_ros.robots.readings import Reading
from vdl_ros.robots.session import Session
from vdl_ros.robots.task import make_task
from vdl_ros.ros.messages.images import to_compressed_image, to_image
from vdl_ros.ros.robots.robot_env import RobotVectorEnv
from vdl_ros.ros.robots.robot_topics import RobotInterfaces
from vdl_ros.tools.export_dataset import main as export_dataset

# Seconds from the start of the recording, and motors that run until then.
PHASES = [(2.0, {}), (4.0, {'base': 1}), (6.0, {}), (7.0, {'base': 1, 'shoulder': -1}), (10.0, {})]
SPEED = 0.35
# Of a robot at 10 Hz, ns.
TICKS = [START_NS + number * 100 * MS for number in range(20)]
NAMES = [feature.name for feature in FEATURES]


def positions(time):
    """Return the joints at a time, rad: base and shoulder as PHASES move them."""
    turned = np.clip(time - 2.0, 0.0, 2.0) + np.clip(time - 6.0, 0.0, 1.0)
    return [SPEED * turned, -SPEED * np.clip(time - 6.0, 0.0, 1.0), 0.3, 0.1, 0.0]


def record(path, labels, early=()):
    """Write what an arm does in 10 s: joints at 50 Hz, and what its motors do at 20 Hz."""
    bag = BagBuilder(path)
    for ns in early:
        bag.joints(ns, [1.0] * 5)
    # Recorded a millisecond after it was measured.
    for number in range(500):
        bag.joints(START_NS + number * 20 * MS, positions(number / 50), late_ns=MS)
    for number in range(200):
        motors = next(motors for end, motors in PHASES if number / 20 < end)
        bag.motors(START_NS + number * 50 * MS, [motors.get(name, 0) for name in JOINTS], MS)
    bag.write(labels)


@pytest.fixture(scope='module')
def demos(tmp_path_factory):
    """Return a folder of a success and a failure."""
    folder = tmp_path_factory.mktemp('recorded') / 'demos'
    record(folder / 'episode_0000', EpisodeLabels('reach', True, 'owi535'))
    record(folder / 'episode_0001', EpisodeLabels('reach', False, 'owi535'))
    return folder


@pytest.fixture(scope='module')
def spaces():
    return factory.spaces(EnvConfig(env_id=REACH))


def test_a_bag_becomes_what_the_task_observes_on_the_way_to_where_it_ended(demos, spaces):
    found = load_demonstrations(demos, REACH, spaces, known_contracts())
    assert found.episodes == 1, 'the failure is left out'
    # From the first motion, to a second after the last one; of the rest between, half a second.
    assert len(found.observations) == 20 + 5 + 10 + 10
    expected = ([[2, 1, 1, 1]] * 20 + [[1, 1, 1, 1]] * 5 + [[2, 0, 1, 1]] * 10
                + [[1, 1, 1, 1]] * 10)
    wrong = np.any(found.actions != expected, axis=1)
    # Ticks are not at the times of the commands.
    assert wrong.sum() <= 3

    def feature(name):
        return found.observations[:, NAMES.index(name)]

    goal = Kinematics(load()).pose(np.array([positions(10.0)]))[0, :3, 3]
    for index, axis in enumerate('xyz'):
        np.testing.assert_allclose(
            feature(f'tool_{axis}') + feature(f'target_from_tool_{axis}'), goal[index], atol=1e-6)
    assert np.abs(feature('target_from_tool_x')[-5:]).max() < 1e-3
    assert np.abs(feature('base_position')[[0, 20]] - [0.0, 0.7]).max() < 0.05
    np.testing.assert_allclose(feature('base_velocity')[5:15], SPEED, rtol=0.01)
    # As in the environment, an observation has the commands before it.
    np.testing.assert_array_equal(feature('base_command_1')[1:20], found.actions[:19, 0] - 1)
    assert np.all((feature('age') > 0.0) & (feature('age') < 0.03))


@pytest.mark.parametrize('hold', [1, 2])
def test_with_outcomes_all_steps_follow_each_other_up_to_the_success(demos, tmp_path, hold):
    shutil.copy(known_contracts()['owi535'], tmp_path / 'shipped.yaml')
    path = tmp_path / 'owi535.yaml'
    path.write_text(f'include: shipped.yaml\ntask: {{arguments: {{hold: {hold}}}}}\n')
    space = make_task(read_contract(path)).observation_space
    found = load_demonstrations(
        demos, 'robot/owi535', (space, MultiDiscrete([3] * 4)), {'owi535': path}, outcomes=True)
    outcomes = found.outcomes
    np.testing.assert_array_equal(found.observations[1:], outcomes.observations[:-1])
    # The rest between the motions is not left out; the goal is held after the last one.
    assert 40 + 10 * hold < len(found.actions) <= 50 + 10 * hold
    moves = np.any(found.actions != 1, axis=1)
    assert outcomes.rewards[moves].min() > 0.0, 'each motion is one to the goal'
    assert outcomes.ends.tolist() == [False] * (len(found.actions) - 1) + [True]
    np.testing.assert_array_equal(outcomes.terminated, outcomes.ends)
    assert outcomes.rewards[-1] == outcomes.rewards.max() > 1.0


@pytest.mark.parametrize('exported', [False, True])
def test_a_success_of_which_only_the_person_knows_is_the_reward(demos, tmp_path, exported):
    shutil.copy(known_contracts()['owi535'], tmp_path / 'shipped.yaml')
    path = tmp_path / 'owi535.yaml'
    path.write_text('include: shipped.yaml\ntask: null\nsuccess_reward: 5.0\n')
    task, folder = make_task(read_contract(path)), demos
    if exported:
        folder = tmp_path / 'data'
        assert export_dataset([
            str(demos), '--output', str(folder), '--no-images', '--robot', str(path)]) == 0
    found = load_demonstrations(
        folder, 'robot/owi535', (task.observation_space, MultiDiscrete([3] * 4)), {'owi535': path},
        outcomes=True)
    assert found.outcomes.rewards.tolist() == [0.0] * (len(found.actions) - 1) + [5.0]
    np.testing.assert_array_equal(found.outcomes.terminated, found.outcomes.ends)


def test_the_exported_data_set_demonstrates_the_same(demos, spaces, tmp_path):
    output = tmp_path / 'data'
    words = [str(demos), '--no-images', '--robot', 'owi535', '--output']
    assert export_dataset([*words, str(output)]) == 0
    assert export_dataset([*words, str(tmp_path / 'cut'), '--episode-seconds', '5']) == 0
    cut = read_lerobot(tmp_path / 'cut')
    assert [bool(cut.success[cut.episodes == number].any()) for number in range(4)] == [
        False, True, False, False], 'the first half does not come to the end'
    bags, data = (load_demonstrations(each, REACH, spaces, known_contracts())
                  for each in (demos, output))
    np.testing.assert_array_equal(bags.actions, data.actions)
    tool = [NAMES.index(f'tool_{axis}') for axis in 'xyz']
    np.testing.assert_allclose(bags.observations[:, tool], data.observations[:, tool], atol=0.01)


_LEVELS = {'levels': [-0.5, 0.0, 1.0]}


@pytest.mark.parametrize(('parts', 'limits'), [
    ([{'low': -1, 'high': 1}], []), ([_LEVELS], []),
    ([_LEVELS, {'levels': [-0.5, 0.0, 0.5, 1.0]}], []),
    ([_LEVELS], [{'feature': 'speed', 'low': -9, 'high': 1}])])
def test_a_taken_over_episode_its_bag_and_its_data_set_are_the_same_steps(
        tmp_path, parts, limits):
    """To the bit: what a person commands is one demonstration by each of the three ways."""
    (tmp_path / 'rewards.py').write_text(
        'def speed(before, after):\n    return before["speed"] + 2.0 * after["speed"]\n')
    path = tmp_path / 'mine.yaml'
    path.write_text(yaml.safe_dump(GOOD | {
        'rate': 10.0, 'episode_steps': 100, 'reward': {'function': 'rewards:speed'},
        'limits': limits, 'limit_penalty': 5.0, 'success_reward': float(bool(limits)),
        'actions': GOOD['actions'] | {'parts': [
            {'name': name, 'field': field, 'unit': '', **part} for part, (name, field) in zip(
                parts, [('forward', 'linear.x'), ('turn', 'angular.z')], strict=False)]}}))
    random, contract = np.random.default_rng(1), read_contract(path)
    # Numbers of float32, as in a data set.
    speeds = random.integers(-256, 256, 25) / 256
    speeds[15] = 2.0 if limits else speeds[15]
    # All off would end the episode, and a replay begins at the first motion.
    commands = [(index * 37 * MS, random.choice([-0.5, 1.0] if index > 2 else [1.0], len(
        parts)).tolist()) for index in range(64)]
    live = live_steps(contract, speeds, commands)
    messages = [(index * 100 * MS, '/odom', odometry(speed, START_NS + index * 100 * MS))
                for index, speed in enumerate(speeds)]
    messages += [(ns, '/cmd_vel', twist(values)) for ns, values in commands]
    write_bag(tmp_path / 'demos/episode_0000',
              [(START_NS + ns, *rest) for ns, *rest in sorted(messages, key=itemgetter(0))],
              EpisodeLabels('drive', True, 'mine'))
    assert export_dataset([
        str(tmp_path / 'demos'), '--output', str(tmp_path / 'data'), '--no-images', '--robot',
        str(path)]) == 0
    spaces = make_task(contract).observation_space, RobotVectorEnv(
        1, contract=contract, namespace='', stop=threading.Event()).single_action_space
    for folder in ('demos', 'data'):
        found = load_demonstrations(
            tmp_path / folder, 'robot/mine', spaces, {'mine': path}, outcomes=True)
        for ours, theirs in zip(live, (
                found.observations, found.actions, found.outcomes.rewards,
                found.outcomes.terminated), strict=True):
            np.testing.assert_array_equal(
                np.squeeze(ours), np.squeeze(theirs)[:len(ours)], folder)
        assert not limits or len(found.actions) == 15, 'nothing after the limit'
    assert len(live[0]) == (15 if limits else 24)


def live_steps(contract, speeds, commands):
    """Return the steps of an episode that a person commands throughout.

    They are observations, actions, rewards, and whether a step ended it.
    """
    now, steps = -0.1, []
    session = Session(contract, make_task(contract), None, lambda _: None, print,
                      name='/robot', takeovers=True, clock=lambda: now)
    session.on_reading('odom', Reading({'speed': 0.0}, now, 0.0, now, now))
    session.tick(now)
    waiting = list(commands)
    for index, speed in enumerate(speeds):
        while waiting and waiting[0][0] < index * 100 * MS:
            at, values = waiting.pop(0)
            session.on_other('/teleop', at / 1e9, moving=any(values), values=values)
        now = index / 10
        session.on_reading('odom', Reading({'speed': speed}, now, 0.0, now, now))
        session.tick(now)
        steps.append(session.take())
        if steps[-1].terminated:
            break
        session.act(np.array(contract.actions.neutral), now)
    before = [each.observation for each in steps[:-1]]
    return np.stack(before), np.stack([each.executed for each in steps[1:]]).astype(
        np.float32), *(np.array([getattr(each, name) for each in steps[1:]])
                       for name in ('reward', 'terminated'))


def test_positions_that_a_robot_was_sent_are_its_actions_live_and_in_a_bag(tmp_path):
    part = {'unit': 'm/s', 'low': -1, 'high': 1, 'field': 'positions', 'step': 0.25}
    (tmp_path / 'rewards.py').write_text(
        'def speed(before, after):\n    return before["speed"] + 2.0 * after["speed"]\n')
    path = tmp_path / 'mine.yaml'
    path.write_text(yaml.safe_dump(GOOD | {
        'rate': 10.0, 'episode_steps': 100, 'reward': {'function': 'rewards:speed'},
        'actions': {'topic': 'arm', 'type': 'trajectory_msgs/msg/JointTrajectory', 'parts': [
            part | {'name': 'a', 'key': 'joint', 'position_of': 'speed'}]}}))
    contract, random, now = read_contract(path), np.random.default_rng(1), -0.1
    sent, seen, messages = [], [], []
    interfaces = RobotInterfaces(contract)
    session = Session(contract, make_task(contract), None, sent.append, print, clock=lambda: now)
    for index in range(25):
        now, speed = index / 10, float(sent[-1][0]) if sent else 0.5
        session.on_reading('odom', Reading({'speed': speed}, now, 0.0, now, now))
        session.tick(now)
        if result := session.take():
            seen.append(result.observation)
        session.act(random.uniform(-1.0, 1.0, 1), now)
        ns = START_NS + index * 100 * MS
        messages.append((ns, '/odom', odometry(speed, ns)))
        if sent:
            messages.append((ns, '/arm',
                             interfaces.message(sent[-1], Time(sec=1), '')))
    assert messages[-1][2].joint_names == ['joint']
    assert messages[-1][2].points[0].time_from_start.nanosec == 10**8
    write_bag(tmp_path / 'demos/episode_0000', messages, EpisodeLabels('move', True, 'mine'))
    found = load_demonstrations(
        tmp_path / 'demos', 'robot/mine', (make_task(contract).observation_space, RobotVectorEnv(
            1, contract=contract, namespace='', stop=threading.Event()).single_action_space),
        {'mine': path}, outcomes=True)
    count = len(found.observations)
    assert count >= 20
    # The first command is no motion yet.
    np.testing.assert_array_equal(found.observations[2:], seen[-count - 1:-1][2:])
    np.testing.assert_allclose(found.actions[:, 0], np.ravel(sent)[-count - 1:-1], atol=1e-7)


def test_commands_without_a_stamp_need_a_recorder_with_the_simulated_clock(tmp_path):
    (tmp_path / 'rewards.py').write_text('def speed(before, after):\n    return after["speed"]\n')
    path = tmp_path / 'mine.yaml'
    path.write_text(yaml.safe_dump(GOOD | {
        'rate': 10.0, 'clock': 'simulated', 'reward': {'function': 'rewards:speed'}}))
    space = make_task(read_contract(path)).observation_space
    # Real time factors as the recorder's clock saw them.
    for factor in (1, 5):
        messages = [message for index in range(100) for message in (
            (START_NS + index * 100 * MS // factor, '/odom',
             odometry(0.5, START_NS + index * 100 * MS)),
            (START_NS + index * 100 * MS // factor, '/cmd_vel', twist([0.01 * index])))]
        write_bag(tmp_path / f'{factor}/episode_0000', messages, EpisodeLabels('', True, 'mine'))
    assert len(load_demonstrations(tmp_path / '1', 'robot/mine', (space, Box(-1.0, 1.0, (1,))),
                                   {'mine': path}).actions) == 98
    with pytest.raises(ValueError, match=(
            r'^/.*/5/episode_0000: 9.9 s of simulated time were recorded as 1.98 s, and commands '
            r'have no stamp: record it again with record_episodes --ros-args -p '
            r'use_sim_time:=true$')):
        load_demonstrations(tmp_path / '5', 'robot/mine', (space, Box(-1.0, 1.0, (1,))),
                            {'mine': path})


def test_of_several_robots_the_one_that_was_driven_demonstrates(tmp_path):
    path = tmp_path / 'mine.yaml'
    (tmp_path / 'rewards.py').write_text('def speed(before, after):\n    return after["speed"]\n')
    path.write_text(yaml.safe_dump(GOOD | {
        'rate': 10.0, 'copies': 2, 'namespace': 'robot_{}', 'reward': {
            'function': 'rewards:speed'}}))
    spaces = make_task(read_contract(path)).observation_space, Box(-1.0, 1.0, (1,))

    def rewards(driven):
        messages = [message for ns in TICKS for robot in (0, 1) for message in (
            (ns, f'/robot_{robot}/odom', odometry(0.5 * robot, ns)),
            *([(ns, f'/robot_{robot}/cmd_vel', twist([0.1]))] if robot in driven else []))]
        folder = tmp_path / f'of {driven}'
        write_bag(folder / 'episode_0000', messages, EpisodeLabels('', True, 'mine'))
        return load_demonstrations(
            folder, 'robot/mine', spaces, {'mine': path}, outcomes=True).outcomes.rewards

    assert set(rewards([1])) == {0.5}
    for driven, which in (([0, 1], 'robot_0, robot_1'), ([], 'no robot')):
        with pytest.raises(ValueError, match=rf'episode_0000: has commands of {which} of 2: '):
            rewards(driven)


def test_a_reward_sees_an_image_that_the_policy_does_not(tmp_path):
    path = tmp_path / 'mine.yaml'
    (tmp_path / 'rewards.py').write_text(
        'def red(before, after):\n    return float(after.images["eye"][0, 0, 0])\n')
    path.write_text(yaml.safe_dump(GOOD | {
        'rate': 10.0, 'reward': {'function': 'rewards:red'}, 'images': [
            {'name': 'eye', 'topic': 'eye', 'size': [36, 40], 'observed': False}]}))
    spaces = make_task(read_contract(path)).observation_space, Box(-1.0, 1.0, (1,))

    def load(folder, outcomes=True):
        return load_demonstrations(tmp_path / folder, 'robot/mine', spaces, {'mine': path},
                                   outcomes=outcomes)

    blind = [message for ns in TICKS for message in (
        (ns, '/odom', odometry(0.5, ns)), (ns, '/cmd_vel', twist([0.1])))]
    images = [(ns, '/eye', to_image(np.full((40, 36, 3), 10 * index, np.uint8), stamp(ns)))
              for index, ns in enumerate(TICKS)]
    for folder, messages in ('blind', blind), ('seen', sorted(blind + images, key=itemgetter(0))):
        write_bag(tmp_path / folder / 'episode_0000', messages, EpisodeLabels('', True, 'mine'))
    assert np.all(np.diff(load('seen').outcomes.rewards) == 10.0)
    with pytest.raises(ValueError, match='blind/episode_0000: no message on eye$'):
        load('blind')
    np.testing.assert_array_equal(load('blind', outcomes=False).actions,
                                  load('seen', outcomes=False).actions)


def odometry(speed, ns=0):
    message = Odometry(header=Header(stamp=stamp(ns)))
    message.twist.twist.linear.x = speed
    return message


def twist(values):
    message = Twist()
    message.linear.x, message.angular.z = *values, *[0.0] * (2 - len(values))
    return message


def test_a_damaged_bag_is_learned_up_to_the_damage_with_a_warning(demos, spaces, tmp_path):
    bag = Path(shutil.copytree(demos / 'episode_0000', tmp_path / 'cut'))
    file = next(bag.glob('*.mcap'))
    # Without its index, and the last of its messages.
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.warns(UserWarning, match=rf'{file} is cut off or damaged after \d+ messages'):
        load_demonstrations(bag, REACH, spaces, known_contracts())


def test_messages_before_a_clock_was_set_are_left_out_with_a_warning(demos, spaces, tmp_path):
    record(tmp_path / 'bag', EpisodeLabels('reach', True, 'owi535'), early=[0, 1])
    with pytest.warns(UserWarning, match=r'bag: its clock goes from 0.0 to 1700000000.0 s'):
        found = load_demonstrations(tmp_path / 'bag', REACH, spaces, known_contracts())
    wanted = load_demonstrations(demos, REACH, spaces, known_contracts())
    np.testing.assert_array_equal(found.observations, wanted.observations)


def test_an_episode_that_does_not_fit_in_memory_is_refused(demos, spaces, monkeypatch):
    monkeypatch.setattr(loading, '_CHECKED', 100)
    monkeypatch.setattr(memory, 'free_memory', lambda: 1_000_000)
    with pytest.raises(ValueError, match='episode_0000: 0 MB in memory are not allowed'):
        load_demonstrations(demos, REACH, spaces, known_contracts())


def test_bags_of_another_robot_are_refused(tmp_path):
    for robot, env_id, reason in (
            ('cleaner', REACH, "of robot 'cleaner', of which this host has no contract: owi535"),
            ('', REACH, 'metadata.yaml: custom_data: robot: missing, so that nothing says'),
            ('owi535', 'CartPole-v1',
             "of robot 'owi535', whose observations of shape [59] do not fit")):
        folder = tmp_path / f'of {robot}'
        record(folder / 'episode_0000', EpisodeLabels('reach', True, robot))
        with pytest.raises(ValueError, match=f'episode_0000|{robot}') as error:
            load_demonstrations(folder, env_id,
                                factory.spaces(EnvConfig(env_id=env_id)), known_contracts())
        assert reason in str(error.value)
        assert '\n' not in str(error.value)


def test_demonstrations_whose_actions_mean_something_else_are_refused(tmp_path):
    """Changes of positions and positions have one shape."""
    spaces, contracts = factory.spaces(EnvConfig(env_id=SO101_REACH)), known_contracts()
    record(tmp_path / 'bags/episode_0000', EpisodeLabels('reach', True, 'so101_positions'))
    with new_data_set(tmp_path / 'data', SO101_REACH, 'reach', 10.0) as write:
        write(np.zeros((2, *spaces[0].shape)), np.zeros((2, 5)), np.zeros(2), True)
    changes = 'action shoulder_pan from -0.1 to 0.1, change_of shoulder_pan'
    positions = ('action shoulder_pan from -1.91986 to 1.91986, position_of shoulder_pan, '
                 'step 0.1')
    for folder, env_id, robot, theirs, ours in (
            ('bags', SO101_REACH, 'so101_positions', positions, changes),
            ('bags', 'robot/so101', 'so101_positions', positions, changes),
            ('data', 'robot/so101_positions', SO101_REACH, changes, positions)):
        with pytest.raises(ValueError, match='of robot') as error:
            load_demonstrations(tmp_path / folder, env_id, spaces, contracts)
        assert str(error.value) == (f'{tmp_path / folder}: of robot {robot!r}, with {theirs}, '
                                    f'where {env_id} has {ours}')
    for env_id in (SO101_REACH, 'robot/so101', 'robot/so101_sim'):
        assert load_demonstrations(tmp_path / 'data', env_id, spaces, contracts).episodes == 1


def test_a_bag_with_images_becomes_what_a_live_session_observed(tmp_path):
    (tmp_path / 'rewards.py').write_text('def speed(before, after):\n    return after["speed"]\n')
    (tmp_path / 'mine.yaml').write_text(yaml.safe_dump(GOOD | {
        'reward': {'function': 'rewards:speed'}, 'episode_steps': 1000, 'images': [
            {'name': 'eye', 'topic': 'eye', 'size': [36, 40], 'stack': 3, 'crop': [0, 0, 48, 40]},
            {'name': 'other', 'topic': 'other', 'type': 'sensor_msgs/msg/CompressedImage',
             'size': [36, 40], 'grayscale': True}]}))
    contract = read_contract(tmp_path / 'mine.yaml')
    task, messages, live, now = make_task(contract), [], [], START_NS
    session = Session(contract, task, None, lambda action: messages.append(
        (now, '/cmd_vel', Twist(linear=Vector3(x=float(action[0]))))), print,
        clock=lambda: now * 1e-9)

    def say(key, topic, message, values, seen=None):
        messages.append((now, f'/{topic}', message))
        session.on_reading(key, Reading(values, now * 1e-9, 0.0, now * 1e-9, 0.0, seen))

    for millisecond in range(2, 2000):
        now = START_NS + millisecond * MS
        pixels = picture(millisecond, (44, 52))
        if millisecond % 13 == 0:
            odom = Odometry(header=Header(stamp=stamp(now)))
            odom.twist.twist.linear.x = 1e-4 * millisecond
            say('odom', 'odom', odom, {'speed': 1e-4 * millisecond})
        if millisecond % 33 == 0:
            image = to_image(pixels, stamp(now))
            image.encoding = 'bgr8'
            say('eye', 'eye', image, {}, frame(contract.images[0], pixels_of(image)))
        if millisecond % 47 == 0:
            image = to_compressed_image(pixels, stamp(now))
            say('other', 'other', image, {}, frame(contract.images[1], pixels_of(image)))
        # From the first tick of the replay on: when all have come.
        if millisecond >= 47 and (millisecond - 47) % 50 == 0:
            session.tick(now * 1e-9)
            if (result := session.take()) is not None:
                live.append(result.observation)
                session.act(np.array([0.5]), now * 1e-9)
    write_bag(tmp_path / 'demos' / 'episode_0000', messages, EpisodeLabels('', True, 'mine'))
    space = Observer(contract, task).space
    found = load_demonstrations(
        tmp_path / 'demos', 'robot/mine', (space, Box(-1.0, 1.0, (1,))),
        {'mine': tmp_path / 'mine.yaml'})
    assert space.image.shape == (40, 36, 10)
    assert 30 < len(found.observations) <= len(live)
    (images, numbers), (seen, known) = (
        space.split(np.asarray(each)) for each in (found.observations, live[:len(found.actions)]))
    np.testing.assert_array_equal(images, seen)
    np.testing.assert_allclose(numbers, known, atol=1e-5)
    assert images[10].std() > 10.0
    with pytest.raises(ValueError, match='without an image|images of a robot'):
        Demonstrations(np.zeros((2, 5), np.float32), found.actions[:2], 1, 'rows').fitted(
            space, Box(-1.0, 1.0, (1,)))

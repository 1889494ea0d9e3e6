"""A second policy that resets a robot."""

import pytest
import yaml
from refusals import refusal
from robot_contract import GOOD

from vdl_ros.play.onnx_policy import OnnxPolicy
from vdl_ros.play.policy_resetter import PolicyResetter
from vdl_ros.robots.contract import ContractError
from vdl_ros.robots.contract_files import read_contract
from vdl_ros.robots.episode import State
from vdl_ros.robots.readings import Reading
from vdl_ros.robots.session import Session
from vdl_ros.robots.task import make_task

# As CartPole: four numbers, and one of two actions.
BACK = GOOD | {
    'actions': GOOD['actions'] | {'parts': [{
        'name': 'forward', 'field': 'linear.x', 'unit': 'm/s', 'levels': [-1.0, 1.0],
        'neutral': -1.0}]},
    'reward': {'function': 'back:reward'}, 'success': {'function': 'back:is_back'}}


@pytest.fixture
def robot(exported, tmp_path):
    """Return a session, its contract, what was sent, and a function that goes on by a tick."""
    _, file = exported('CartPole-v1')
    (tmp_path / 'back.onnx').write_bytes(file.read_bytes())
    (tmp_path / 'back.py').write_text(
        'def reward(before, after):\n    return 0.5\n'
        'def is_back(after):\n    return after["speed"] < 0.1\n')
    (tmp_path / 'back.yaml').write_text(yaml.safe_dump(BACK))
    path = tmp_path / 'there.yaml'
    path.write_text(yaml.safe_dump(BACK | {'success': None, 'reset': {
        'policy': {'file': 'back.onnx', 'robot': 'back', 'timeout': 2.0}}}))
    contract, now, sent = read_contract(path), [0.0], []
    session = Session(
        contract, make_task(contract), PolicyResetter(contract, contract.reset, lambda: now[0]),
        lambda action: sent.append(action.tolist()), print, clock=lambda: now[0])

    def tick(speed):
        now[0] += 0.05
        session.on_reading('odom', Reading({'speed': speed}, now[0], 0.0, now[0], now[0]))
        session.tick(now[0])
        return session.take()

    return session, contract, sent, tick


def test_a_policy_acts_until_its_own_task_succeeds_and_then_the_episode_begins(
        robot, monkeypatch):
    session, _, sent, tick = robot
    rewards, step = [], OnnxPolicy.step
    monkeypatch.setattr(OnnxPolicy, 'step', lambda policy, *given: (
        rewards.append(given[2].tolist()) or step(policy, *given)))
    for _ in range(5):
        assert tick(0.9) is None
    # The neutral action first, then those of the policy, which is deterministic.
    assert session.state is State.RESETTING
    assert sent[0] == [-1.0]
    assert len(sent) == 5
    assert rewards == [[0.0], [0.5], [0.5], [0.5]], 'of its own task'
    assert {*map(tuple, sent[1:])} <= {(-1.0,), (1.0,)}
    tick(0.05)
    assert session.state is State.SETTLING
    assert sent[-1] == [-1.0], 'neutral'
    assert tick(0.05).is_first
    assert session.state is State.RUNNING


@pytest.mark.parametrize('other', ['/teleop', '/arm_controller'])
def test_who_else_moves_the_robot_ends_the_reset_which_is_not_for_ever(robot, capsys, other):
    session, _, sent, tick = robot
    for _ in range(3):
        tick(0.9)
    session.on_other(other, 0.15, moving=True)
    count = len(sent)
    assert session.state is State.WAITING
    tick(0.9)
    assert len(sent) == count, 'the other one has the robot'
    for _ in range(90):
        tick(0.9)
    assert 'reset: back.onnx has not brought it back within 2 s' in capsys.readouterr().out


def test_a_policy_of_another_robot_is_refused(robot, tmp_path):
    content = yaml.safe_load((tmp_path / 'there.yaml').read_text())
    for changed, reason in (
            ({'rate': 10.0},
             "robot: 'back' is not allowed: its rate are not those of this contract"),
            ({'actions': GOOD['actions']}, 'its actions are not those'),
            ({'reset': {'policy': {'file': 'no.onnx', 'robot': 'back', 'timeout': 2.0}}},
             'no.onnx: no such file'),
            ({'features': [*GOOD['features'], GOOD['features'][0] | {'name': 'more'}]},
             'its features')):
        (tmp_path / 'there.yaml').write_text(yaml.safe_dump(content | changed))
        contract = read_contract(tmp_path / 'there.yaml')
        assert reason in refusal(ContractError, PolicyResetter, contract, contract.reset), changed


def test_a_policy_of_another_task_is_refused(exported, robot, tmp_path):
    _, contract, *_ = robot
    _, file = exported('Acrobot-v1')
    (tmp_path / 'back.onnx').write_bytes(file.read_bytes())
    with pytest.raises(ContractError, match='there.yaml: reset: policy: file: .*observation'):
        PolicyResetter(contract, contract.reset)

"""Whether the program of an external policy is there, while the robot is reset, too."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from std_msgs.msg import String

from vdl_ros.play.external_policy import make_measured_task
from vdl_ros.robots.contract_files import find_contract
from vdl_ros.ros.robots import policy_topics

AT_REST = {'base': 0.5, 'shoulder': 0.1}, {'joints': 0.02}


@pytest.fixture
def program(monkeypatch):
    """Return what the program is asked, how it answers, and ``problem``, by a clock of its own."""
    found = SimpleNamespace(now=0.0, tick=0.0, asked=[])
    node = SimpleNamespace(
        get_logger=lambda: SimpleNamespace(warning=lambda *_, **__: None),
        resolve_topic_name=lambda name: f'/{name}',
        pub=lambda name: SimpleNamespace(
            publish=lambda message: found.asked.append(json.loads(message.data)),
            topic_name=f'/{name}'),
        sub=lambda name, callback: setattr(found, 'hear', callback) or SimpleNamespace(
            get_publisher_count=lambda: 1, topic_name=f'/{name}'))

    def clock():
        found.now += found.tick
        return found.now

    monkeypatch.setattr(policy_topics, 'time', SimpleNamespace(monotonic=clock))
    topics = policy_topics.PolicyTopics(
        node, find_contract('owi535'), lambda: False, horizon=2.0, ensemble=-1.0)

    def problem(now, at_rest=AT_REST):
        found.now = now
        return topics.problem(at_rest)

    found.problem, found.topics = problem, topics
    return found


def answer(program):
    program.hear(String(data=json.dumps(
        {'id': program.asked[-1]['id'], 'actions': [[0.0] * 4]})))


def test_a_program_is_asked_before_a_robot_moves_and_counts_as_gone_without_an_answer(program):
    assert 'has not answered' in program.problem(0.0), 'nothing begins before'
    told, = program.asked
    assert told['is_first']
    assert told['state'] == AT_REST[0] | {'elbow': None, 'wrist': None, 'gripper': None}
    assert program.problem(0.5)
    assert len(program.asked) == 1, 'once a second'
    # It may not have heard the first question.
    assert program.problem(1.0)
    assert program.asked[-1] == told
    answer(program)
    assert program.problem(1.0) == ''
    assert program.topics.has_acted, 'a person confirms if it is gone'
    assert program.problem(2.0) == program.problem(3.9) == ''
    assert 'has not answered' in program.problem(4.1), 'the question at 2.0'
    # An episode has begun, and the same question is asked again.
    assert 'has not answered' in program.problem(5.2, None)
    assert program.asked[-1] == program.asked[-2]
    answer(program)
    assert program.problem(5.3, None) == ''
    assert not program.topics.delays, 'no action of a step'


def test_after_another_start_nothing_begins_before_the_program_has_answered_again(program):
    program.problem(0.0)
    answer(program)
    assert program.problem(0.1) == ''
    program.topics.begin()
    answer(program)
    assert 'has not answered' in program.problem(0.2), 'an answer to what was asked before'
    assert 'has not answered' in program.problem(1.3)
    answer(program)
    assert program.problem(1.4) == ''


def test_a_slow_program_is_told_that_an_episode_begins_until_it_answers(program):
    topics = program.topics
    task = make_measured_task(find_contract('owi535'))
    observation = np.zeros((1, *task.observation_space.shape))

    def act(step, is_first=False):
        program.now += 1.0
        observation[0, -1] = 0.1 * step
        topics.act(observation, np.array([is_first]), np.zeros(1))
        return program.asked[-1]['is_first']

    assert program.problem(0.0)
    answer(program)
    assert program.problem(1.0) == program.problem(2.5) == ''
    assert len(program.asked) == 2, 'no other question before it has answered'
    # Each question is longer than the time for an action.
    program.tick = 0.2
    assert [act(0, True), act(1)] == [True, True]
    answer(program)
    assert not act(2)
    assert act(0, True)

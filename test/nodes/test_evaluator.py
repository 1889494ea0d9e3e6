"""The evaluator node: whose policies it evaluates, and what becomes of one that fails."""

import json
import threading

import pytest
import rclpy

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.nodes.evaluator import EvaluatorNode
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.settings import TrainConfig
from vdl_ros.ros import process
from vdl_ros.ros.messages.tensors import to_tensors

TRAIN = TrainConfig(hidden_size=4, eval_episodes=2)


@pytest.fixture
def answers(monkeypatch):
    """Return a function that returns how a policy of a learner is answered, None: not at all."""
    monkeypatch.setattr(process, 'die_with_parent', lambda: None)
    rclpy.init(args=['--ros-args', '-p', 'launch_id:=mine'])
    node, found = EvaluatorNode(), [None]
    monkeypatch.setattr(node._evaluations, 'publish', found.append)
    tensors = to_tensors(dict(weights(make_policy(TRAIN, *factory.spaces(EnvConfig())))))

    def put(learner_id):
        del found[1:]
        node._policies.put(Policy(learner_id=learner_id, agent_steps=7, tensors=tensors,
                                  config=json.dumps(as_dict(EnvConfig(), TRAIN))))
        node.evaluate(threading.Event())
        return found[-1]

    yield put
    node.stop()
    node.destroy_node()
    rclpy.shutdown()


def test_it_evaluates_for_the_learner_of_its_launch_only(answers, capfd):
    assert answers('other/1') is None, 'although its own has not come yet'
    assert "another learner, 'other/1', publishes on /evaluated_policy" in capfd.readouterr().err
    for learner_id in ('mine/1', 'mine/2'):
        answer = answers(learner_id)
        assert (answer.learner_id, answer.agent_steps) == (learner_id, 7)
        assert len(answer.episodes) == 2
        assert answers('other/1') is None
    assert answers('mine/1') is None, 'its launch has started another'


def test_what_a_policy_names_may_raise_anything_and_its_learner_is_told(answers, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr('vdl_ros.play.evaluator.make_policy', lambda *_: 1 / 0)
        assert answers('mine/1').problem.startswith('ZeroDivisionError: division by zero (test_')
    assert not answers('mine/1').problem

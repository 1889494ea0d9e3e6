"""The nodes evaluate and evaluator: whose policies, what is published, and what fails."""

import itertools
import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import rclpy
from rclpy.clock import Clock

from vdl_ros.common.settings import as_dict
from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import CheckedVectorEnv
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.nodes.evaluate import EvaluateNode, main
from vdl_ros.nodes.evaluator import EvaluatorNode
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.runs.checkpoint import save_checkpoint
from vdl_ros.rl.settings import EvaluateConfig, TrainConfig, make_algorithm_config
from vdl_ros.ros import process
from vdl_ros.ros.messages.tensors import to_tensors


def test_published_episodes_say_how_they_ended_before_environments_are_closed(monkeypatch):
    published, done, lines, stop = [], [], [], threading.Event()
    monkeypatch.setattr(CheckedVectorEnv, 'close', lambda _: done.append('closed'))
    node = SimpleNamespace(
        _config=EvaluateConfig(episodes=6, num_envs=2), _env=EnvConfig(env_id='vdl/Counter-v0'),
        _episodes=SimpleNamespace(publish=published.append), _saved=SimpleNamespace(
            version=7, act=lambda deterministic: lambda observations, *rest: np.zeros(
                len(observations), np.int64)),
        is_attack=False, get_clock=Clock, _other=None,
        get_logger=lambda: SimpleNamespace(info=print, warning=lines.append),
        play=lambda *given: EvaluateNode.play(node, *given),
        get_fully_qualified_name=lambda: '/evaluate',
        _report=lambda result, before: done.append(len(published)))
    assert EvaluateNode.run(node, stop) == 0
    assert (done, lines) == ([6, 'closed'], [])
    # In the counter environments every second episode is truncated.
    assert {(each.terminated, each.truncated) for each in published} == {
        (True, False), (False, True)}
    assert {each.environment for each in published} == {0, 1}
    assert {each.policy_version for each in published} == {7}
    step, counts = CheckedVectorEnv.step, itertools.count(1)

    def stopped(*given):
        if next(counts) == 30:
            stop.set()
            # As a robot that waits.
            raise EnvStopped
        return step(*given)

    monkeypatch.setattr(CheckedVectorEnv, 'step', stopped)
    assert EvaluateNode.run(node, stop) == 130
    assert lines == [f'interrupted after {len(published) - 6} of 6 episodes']
    assert 6 < len(published) < 12
    assert done[-1] == 'closed'


@pytest.fixture
def checkpoint(tmp_path):
    env, config = EnvConfig(env_id='vdl/Counter-v0'), TrainConfig(hidden_size=4)
    settings = make_algorithm_config(config, {})
    learner = Learner(config, *factory.spaces(env), algorithm_config=settings)
    path = tmp_path / 'checkpoint.pt'
    save_checkpoint(path, config=as_dict(env, config, settings), learner=learner.state(),
                    progress={})
    return path


def test_two_policies_are_compared_and_the_figures_are_written(checkpoint, tmp_path, run_here):
    figures = tmp_path / 'figures.json'
    status, said = run_here(main, f'checkpoint:={checkpoint}', f'against:={checkpoint}',
                            f'json:={figures}', 'episodes:=6')
    assert status == 0
    found = json.loads(figures.read_text())
    # Its returns do not depend on the actions.
    assert found['against']['mean'] == found['mean'] > 0.0
    assert found['lost'] == 0
    assert found['difference'] == {
        'pairs': 6, 'return': {'mean': 0.0, 'interval': 0.0}, 'success': None}
    assert 'difference in 6 pairs of episodes: of the return +0.00 +-0.00' in said


def test_a_video_that_cannot_be_drawn_is_refused_before_the_episodes(
        refused, checkpoint, tmp_path):
    assert refused(main, f'checkpoint:={checkpoint}', f'video:={tmp_path / "x.mp4"}').endswith(
        'env_id: vdl/Counter-v0 cannot render images')


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

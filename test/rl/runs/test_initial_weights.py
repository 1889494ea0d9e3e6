"""Weights of one run start another: they are equal; what does not fit is named in one line."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.common.observation_spaces import ImageAndVector
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.checkpoint import CheckpointError, save_checkpoint
from vdl_ros.rl.settings import TrainConfig

NUMBERS = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
CHOICE = gymnasium.spaces.Discrete(2)
FORCES = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
IMAGE = gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8)


def learner(spaces=(NUMBERS, CHOICE), init='', hidden_size=4, **config):
    return Learner(TrainConfig(hidden_size=hidden_size, **config), *spaces, init=str(init))


def saved(path, learner, **state):
    config = {name: getattr(learner.config, name) for name in (
        'algorithm', 'hidden_size', 'lstm_size', 'normalize_observations', 'action_distribution')}
    save_checkpoint(path, config=config, learner=learner.state() | state, progress={})
    return path


@pytest.mark.parametrize('algorithm', ['ppo', 'dqn'])
def test_the_weights_are_those_of_the_checkpoint_and_nothing_else_is(tmp_path, algorithm):
    options = {'algorithm': algorithm, 'normalize_observations': True}
    first = learner(**options, seed=1)
    first.version, first.agent_steps = 7, 700
    with torch.no_grad():
        for each in first.policy.state_dict().values():
            each += 1
    second = learner(**options, seed=2, init=saved(tmp_path / 'c.pt', first))
    assert {name: each.tolist() for name, each in second.weights().items()} == {
        name: each.tolist() for name, each in first.weights().items()}
    assert (second.version, second.agent_steps) == (0, 0)
    if algorithm == 'dqn':
        target = second.algorithm.target.state_dict()
        assert all(torch.equal(each, target[name])
                   for name, each in second.policy.state_dict().items())


def test_sac_begins_with_the_policy_of_another_algorithm_without_its_values(tmp_path):
    first = learner(algorithm='bc')
    weights = learner(algorithm='sac', init=saved(tmp_path / 'c.pt', first)).weights()
    assert weights
    for name, each in weights.items():
        np.testing.assert_array_equal(each, first.weights()[name])


def test_the_encoder_of_images_begins_a_policy_of_other_numbers_and_actions(tmp_path):
    first = learner((IMAGE, CHOICE), algorithm='ppo', network='impala')
    path, other = saved(tmp_path / 'c.pt', first), (ImageAndVector(IMAGE, 2), FORCES)
    options = {'algorithm': 'sac', 'init': path, 'init_encoder': True}
    second = learner(other, **options)
    there, here = first.weights(), second.weights()
    torso = {name for name in here if name.startswith('policy_torso.')}
    assert torso
    for name in torso:
        np.testing.assert_array_equal(here[name], there[name])
    # The critics begin with its last layer, too.
    np.testing.assert_array_equal(
        second.algorithm.critics.trunk[0].weight.detach(), there['policy_torso.5.weight'])
    with pytest.raises(CheckpointError, match=r"does not fit: 'policy_torso.0.weight' is "
                                              r'\[16, 3, 8, 8\] there, \[32, 3, 8, 8\] here'):
        learner(other, **options, network='nature')
    with pytest.raises(CheckpointError, match="init_encoder: true is not allowed with network "
                                              "'mlp': false"):
        learner(**options)


DIFFERENT = [
    ({'hidden_size': 8}, {}, "'policy_torso.0.weight' is [8, 3] there, [4, 3] here; "
                             'hidden_size: 8 there, 4 here'),
    ({'spaces': (gymnasium.spaces.Box(-1, 1, (5,)), CHOICE)}, {},
     "'policy_torso.0.weight' is [4, 5] there, [4, 3] here"),
    ({'spaces': (NUMBERS, gymnasium.spaces.Discrete(3))}, {},
     "'policy_head.weight' is [3, 4] there, [2, 4] here"),
    ({}, {'lstm_size': 2}, "'lstm.weight_ih' is not there, [8, 4] here; lstm_size: 0 there, 2 "
                           'here'),
    ({'normalize_observations': True}, {}, ' there, not here; normalize_observations: True '
                                         'there, False here'),
    ({'algorithm': 'dqn'}, {'algorithm': 'ppo'}, "algorithm: 'dqn' there, 'ppo' here"),
    ({'spaces': (NUMBERS, FORCES), 'action_distribution': 'squashed'},
     {'spaces': (NUMBERS, FORCES)},
     "action_distribution is 'squashed' there, 'gaussian' here"),
    ({'spaces': (NUMBERS, FORCES)}, {'spaces': (NUMBERS, gymnasium.spaces.Box(-2, 2, (2,)))},
     'scale_actions is False there, True here'),
]


def test_another_network_is_refused_with_what_differs(tmp_path):
    for there, here, message in DIFFERENT:
        path = saved(tmp_path / 'c.pt', learner(**there))
        with pytest.raises(CheckpointError) as caught:
            learner(init=path, **here)
        assert str(caught.value).startswith(f'init: {path} does not fit: ')
        assert message in str(caught.value)
        assert '\n' not in str(caught.value)


def test_a_checkpoint_that_cannot_be_used_is_refused(tmp_path):
    first = learner()
    weights = {name: torch.full_like(each, np.nan)
               for name, each in first.policy.state_dict().items()}
    for state, message in (({'policy': [1]}, 'holds no policy'),
                           ({'policy': {'x': 1}}, 'holds no policy'),
                           ({'policy': weights}, 'not all weights are finite')):
        with pytest.raises(CheckpointError, match=message):
            learner(init=saved(tmp_path / 'c.pt', first, **state))
    with pytest.raises(CheckpointError, match='none.pt'):
        learner(init=tmp_path / 'none.pt')

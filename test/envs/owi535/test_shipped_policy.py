"""The policy that ships: it loads, is small, and reaches its targets in the kinematic twin."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.common.resources import find_resource
from vdl_ros.envs.registration import REACH
from vdl_ros.rl.acting.evaluation import Act, evaluate
from vdl_ros.saved_policy import load_policy

TARGETS = 100


@pytest.fixture(scope='module')
def saved():
    return load_policy(find_resource('models/reach.pt'), env_id=REACH)


def test_the_file_is_small_and_holds_no_optimizer():
    assert find_resource('models/reach.pt').stat().st_size < 300_000


@pytest.mark.parametrize('deterministic', [True, False], ids=['likeliest', 'sampled'])
@pytest.mark.parametrize(('feedback', 'randomisation', 'share'), [
    ('truth', 'inside', 0.93), ('camera', 'inside', 0.9),
    ('truth', 'held_out', 0.4), ('camera', 'held_out', 0.4)])
def test_it_reaches_its_targets(saved, feedback, randomisation, share, deterministic):
    envs = gymnasium.make_vec(REACH, TARGETS, feedback=feedback, randomisation=randomisation)
    act = Act(saved.policy, saved.action_space, deterministic=deterministic)
    torch.manual_seed(0)
    found = evaluate(envs, act, TARGETS, seed=7).episodes
    envs.close()
    reached = [each for each in found if each.success]
    print(f'{feedback}, {randomisation}: {len(reached)} of {len(found)}, '
          f'{np.mean([each.length for each in reached]) / 10:.1f} s')
    assert len(found) == TARGETS
    assert len(reached) >= share * TARGETS

"""The policy that ships: it loads, is small, and reaches its targets in the kinematic twin."""

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.common.files import find_resource
from vdl_ros.envs.registration import REACH
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.evaluation import evaluate

TARGETS = 100


def reached(feedback, randomisation, *, deterministic):
    """Return the share of targets that it reaches."""
    saved = load_policy(find_resource('models/reach.pt'), env_id=REACH)
    envs = gymnasium.make_vec(REACH, TARGETS, feedback=feedback, randomisation=randomisation)
    act = Act(saved.policy, saved.action_space, deterministic=deterministic)
    torch.manual_seed(0)
    found = evaluate(envs, act, TARGETS, seed=7).episodes
    envs.close()
    good = [each for each in found if each.success]
    print(f'{feedback}, {randomisation}: {len(good)} of {len(found)}, '
          f'{np.mean([each.length for each in good]) / 10:.1f} s')
    assert len(found) == TARGETS
    return len(good) / TARGETS


def test_it_is_small_and_reaches_its_targets():
    assert find_resource('models/reach.pt').stat().st_size < 300_000
    assert reached('truth', 'inside', deterministic=True) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize('deterministic', [True, False], ids=['likeliest', 'sampled'])
def test_it_reaches_its_targets_by_camera_and_with_other_twins(deterministic):
    for feedback, randomisation, share in (
            ('truth', 'inside', 0.93), ('camera', 'inside', 0.9), ('truth', 'held_out', 0.4),
            ('camera', 'held_out', 0.4)):
        assert reached(feedback, randomisation, deterministic=deterministic) >= share

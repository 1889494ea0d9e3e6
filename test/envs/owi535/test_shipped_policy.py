"""The policy that ships: it loads, is small, and reaches its targets in the kinematic twin."""

import gymnasium
import pytest
import torch

from vdl_ros.common.files import find_resource
from vdl_ros.envs.registration import REACH
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.acting.evaluation import Act, evaluate

TARGETS = 100


def reached(feedback, randomisation, *, deterministic):
    """Return the share of targets that it reaches."""
    saved = load_policy(find_resource('models/reach.pt'), env_id=REACH)
    envs = gymnasium.make_vec(REACH, TARGETS, feedback=feedback, randomisation=randomisation)
    act = Act(saved.policy, saved.action_space, deterministic=deterministic)
    torch.manual_seed(0)
    found = evaluate(envs, act, TARGETS, seed=7).episodes
    envs.close()
    assert len(found) == TARGETS
    return sum(each.success for each in found) / TARGETS


def test_it_is_small_and_reaches_its_targets():
    assert find_resource('models/reach.pt').stat().st_size < 300_000
    assert reached('truth', 'inside', deterministic=True) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize(('feedback', 'randomisation', 'deterministic', 'share'), [
    ('truth', 'inside', False, 0.93), ('camera', 'inside', True, 0.9),
    ('truth', 'held_out', True, 0.4), ('camera', 'held_out', False, 0.4)])
def test_it_reaches_its_targets_by_camera_and_with_other_twins(
        feedback, randomisation, deterministic, share):
    assert reached(feedback, randomisation, deterministic=deterministic) >= share

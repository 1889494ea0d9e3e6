"""Reach is learned from nothing to a part of its targets."""

import gymnasium
import pytest

from vdl_ros import local_training
from vdl_ros.envs.registration import REACH
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.acting.evaluation import evaluate

STEPS = 300_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_arm_learns_to_reach(tmp_path, own_signals):
    run = tmp_path / 'run'
    assert local_training.main([
        '--env_id', REACH, '--algorithm', 'ppo', '--total_steps', str(STEPS),
        '--run_dir', str(run)]) == 0
    saved = load_policy(run / 'checkpoint.pt')
    envs = gymnasium.make_vec(REACH, 100, feedback='truth')
    found = evaluate(envs, saved.act(), 100, seed=7).episodes
    envs.close()
    # Untrained it reaches hardly any; how many after so few steps depends on the processor.
    assert sum(each.success for each in found) >= 25

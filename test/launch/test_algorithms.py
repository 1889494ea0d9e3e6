"""Every algorithm, a memory, mixed spaces: learned by actors and a learner of their own."""

import re

import gymnasium
import pytest

from vdl_ros import local_training
from vdl_ros.envs.registration import REACH
from vdl_ros.play.saved_policy import load_policy
from vdl_ros.rl.acting.evaluation import evaluate

pytestmark = pytest.mark.slow
# Returns of whole episodes of a counter.
RETURNS = [n * (n + 1) / 2 for n in range(5, 16)]


def train(launch, run, *settings):
    """Train to the end; return the run's summary."""
    training = launch.file('train', f'run_dir:={run}', *settings)
    assert training.wait() == 0, training.output
    found = run.summary
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    return found


def played(launch, run, *settings):
    """Evaluate the policy; return the line about its episodes, and their mean return."""
    evaluate = launch.file('evaluate', f'checkpoint:={run.checkpoint}', *settings)
    assert evaluate.wait() == 0, evaluate.output
    line, mean = re.search(r'(\d+ episodes: mean ([\d.]+),.*)', evaluate.output).groups()
    return line, float(mean)


# impala's is in test_train.py, with all that a run writes.
@pytest.mark.parametrize('settings', [
    ('a3c',), ('ppo', 'num_actors:=2'), ('reinforce',), ('dqn',), ('sac',),
    ('impala', 'inference:=learner', 'num_actors:=2')], ids=lambda words: words[0])
def test_cartpole_is_learned(launch, run, settings):
    algorithm, *more = settings
    # Five times what a random policy gets; docs/results.md has how long each takes to solve it.
    found = train(launch, run, f'algorithm:={algorithm}', 'env_id:=CartPole-v1',
                  'stop_at_return:=110.0', 'num_actors:=1', *more)
    assert (found['algorithm'], found['ended_by']) == (algorithm, 'stop_at_return')
    assert found['mean_return_100'] >= 110
    if algorithm in ('ppo', 'reinforce'):
        assert found['policy_lag'] == {'mean': 0.0, 'max': 0}, 'actors wait for the update'
    assert all(abs(value) < 1e6 for value in run.scalars('losses/loss'))


def test_a_policy_with_a_memory_is_learned_and_played(launch, run):
    found = train(launch, run, 'algorithm:=ppo', 'lstm_size:=32', 'last_action_reward:=true',
                  'stop_at_return:=80.0', 'num_actors:=1')
    assert found['ended_by'] == 'stop_at_return'
    # At random about 20. The last updates may have made it worse than in the episodes before.
    assert played(launch, run, 'episodes:=10')[1] > 30


@pytest.mark.parametrize(('algorithm', 'inference'), [('impala', 'learner'), ('ppo', 'actor')])
def test_an_image_numbers_and_actions_of_parts_are_learned_resumed_and_played(
        launch, run, counters_module, algorithm, inference):
    first = train(launch, run, counters_module, 'env_id:=vdl/MixedCounter-v0',
                  f'algorithm:={algorithm}', f'inference:={inference}', 'last_action_reward:=true',
                  'normalize_observations:=true', 'total_steps:=1500', 'num_actors:=2')
    assert first['agent_steps'] >= 1500
    assert min(RETURNS) <= first['mean_return_100'] <= max(RETURNS)
    # Every other episode of an environment terminates, and is a success.
    assert 0.3 < first['success_rate_100'] < 0.7
    again = launch.file('train', f'resume:={run}', f'total_steps:={first["agent_steps"] + 1}',
                        'num_actors:=2', counters_module)
    assert again.wait() == 0, again.output
    assert run.summary['agent_steps'] > first['agent_steps']
    assert run.summary['updates'] > first['updates']
    line, mean = played(launch, run, counters_module, 'episodes:=11')
    assert min(RETURNS) <= mean <= max(RETURNS)
    # The first episodes of eight environments and the second ones of three.
    assert 'success 73%' in line


STEPS = 300_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_arm_learns_to_reach(tmp_path):
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

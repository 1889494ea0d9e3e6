"""Every algorithm learns through the graph: actors and a learner in processes of their own."""

import pytest

from vdl_ros.nodes import evaluate as evaluate_node


# impala's is in test_train.py, with all that a run writes.
@pytest.mark.parametrize('algorithm', ['a3c', 'ppo', 'reinforce', 'dqn', 'sac'])
def test_cartpole_is_learned(launch, run, algorithm):
    # Five times what a random policy gets; docs/results.md has how long each takes to solve it.
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   f'algorithm:={algorithm}', 'stop_at_return:=110.0',
                   f'num_actors:={2 if algorithm == "ppo" else 1}')
    assert train.wait(timeout=400.0) == 0, train.output
    found = run.summary
    assert (found['algorithm'], found['ended_by']) == (algorithm, 'stop_at_return')
    assert found['mean_return_100'] >= 110
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    if algorithm in ('ppo', 'reinforce'):
        assert found['policy_lag'] == {'mean': 0.0, 'max': 0}, 'actors wait for the update'
    assert all(abs(value) < 1e6 for value in run.scalars('losses/loss'))


def test_a_policy_with_a_memory_is_learned_and_played(launch, run, run_here):
    settings = ('algorithm:=ppo', 'lstm_size:=32', 'last_action_reward:=true',
                'stop_at_return:=80.0', 'num_actors:=1')
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}', *settings)
    assert train.wait(timeout=400.0) == 0, train.output
    assert run.summary['ended_by'] == 'stop_at_return'
    evaluate = launch('ros2', 'launch', 'vdl_ros', 'evaluate.launch.py', 'algorithm:=ppo',
                      f'checkpoint:={run.checkpoint}', 'episodes:=10')
    assert evaluate.wait() == 0, evaluate.output
    line = next(line for line in evaluate.output.splitlines() if '10 episodes: mean' in line)
    # At random about 20. The last updates may have made it worse than in the episodes before.
    assert float(line.split('mean ')[1].split(',')[0]) > 30
    status, said = run_here(evaluate_node.main, 'algorithm:=dqn', f'checkpoint:={run.checkpoint}')
    assert status == 2
    assert f"{run.checkpoint}: algorithm is 'ppo', not 'dqn'" in said

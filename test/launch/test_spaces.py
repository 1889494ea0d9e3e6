"""An image, numbers, actions of parts and success, through processes: learned, resumed, played."""

import re

ENV = 'env_id:=vdl/MixedCounter-v0'
# Returns of whole episodes of a counter.
RETURNS = [n * (n + 1) / 2 for n in range(5, 16)]


def learned(launch, run, algorithm, inference):
    """Train, and return the run's summary."""
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}', ENV,
                   f'algorithm:={algorithm}', 'last_action_reward:=true',
                   'normalize_observations:=true', 'total_steps:=1500',
                   f'inference:={inference}', 'num_actors:=2')
    assert train.wait() == 0, train.output
    first = run.summary
    assert first['trajectories_lost'] == first['trajectories_rejected'] == 0
    assert first['agent_steps'] >= 1500
    assert min(RETURNS) <= first['mean_return_100'] <= max(RETURNS)
    # Every other episode of an environment terminates, and is a success.
    assert 0.3 < first['success_rate_100'] < 0.7
    assert re.search(r'return +[0-9.]+   success +[3-6][0-9]%   lag', train.output)
    return first


def test_a_run_is_learned_from_observations_at_the_learner(launch, run):
    learned(launch, run, 'impala', 'learner')


def test_a_run_is_learned_resumed_and_played(launch, run):
    first = learned(launch, run, 'ppo', 'actor')
    again = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'resume:={run}',
                   f'total_steps:={first["agent_steps"] + 1}', 'num_actors:=2')
    assert again.wait() == 0, again.output
    second = run.summary
    assert second['agent_steps'] > first['agent_steps']
    assert second['updates'] > first['updates']
    assert second['trajectories_lost'] == second['trajectories_rejected'] == 0

    evaluate = launch('ros2', 'launch', 'vdl_ros', 'evaluate.launch.py',
                      f'checkpoint:={run.checkpoint}', 'episodes:=11')
    assert evaluate.wait() == 0, evaluate.output
    line = next(line for line in evaluate.output.splitlines() if '11 episodes: mean' in line)
    assert min(RETURNS) <= float(line.split('mean ')[1].split(',')[0]) <= max(RETURNS)
    # The first episodes of eight environments and the second ones of three.
    assert line.endswith('success 73%')

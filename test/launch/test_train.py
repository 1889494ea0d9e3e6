"""The commands of the README: train, evaluate, resume; what they write and how they end."""

import pytest
import yaml
from PIL import Image
from statistics_msgs.msg import MetricsMessage

from vdl_ros.ros import qos

RANGE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
SHORT = ('total_steps:=5000', 'stop_at_return:=1e9')


def lag_bound(run):
    """
    Return the largest mean lag that credit allows; see test_under_load.py.

    The largest lag has no bound: an actor that is stopped for a while is as far behind as the
    other one has gone on.
    """
    config = yaml.safe_load((run.path / 'config.yaml').read_text())
    return config['num_actors'] * config['max_policy_lag'] / config['batch_size']


def test_cartpole_is_solved_and_everything_is_written(launch, run):
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   'env_id:=CartPole-v1', 'video:=true')
    assert train.wait() == 0, train.output
    found = run.summary
    assert found['mean_return_100'] >= 475
    assert (found['env_id'], found['algorithm']) == ('CartPole-v1', 'impala')
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    assert found['trajectories_received'] * 320 >= found['agent_steps'] > 10_000
    assert found['episodes'] > 100
    assert 0 <= found['policy_lag']['mean'] <= min(found['policy_lag']['max'], lag_bound(run))
    assert 0 < found['message_age_ms']['p50'] <= found['message_age_ms']['p99']
    assert found['actor_restarts'] == found['learner_restarts'] == 0
    assert found['wall_s'] > 0
    assert found['steps_per_s'] > 0
    assert ' connected' in train.output, 'the learner logs how many actors there are'

    config = yaml.safe_load((run.path / 'config.yaml').read_text())
    assert config['env_id'] == 'CartPole-v1'
    assert config['learning_rate'] == 0.002, 'the preset for CartPole is resolved'
    assert len(config) > 30
    for name, low, high in (
            ('trajectories/age_mean_ms', 0, 1e6), ('trajectories/age_max_ms', 0, 1e6),
            ('trajectories/rate_hz', 1, 1e5), ('trajectories/lost', 0, 0),
            ('policy/age_mean_ms', 0, 1e6), ('policy/age_max_ms', 0, 1e6),
            ('policy/rate_hz', 1, 1e5)):
        values = run.scalars(f'topics/{name}')
        assert values, name
        assert low <= max(values) <= high, name
    for thread in ('training', 'callbacks'):
        assert sum(found['time_shares'][thread].values()) == pytest.approx(1.0, abs=1e-3)
    assert found['wire_bytes']['in'] > 0 < found['wire_bytes']['out']
    for name in ('training/learn', 'training/decode', 'callbacks/receive', 'acting/step',
                 'acting/infer', 'acting/wait'):
        assert 0 < max(run.scalars(f'time/{name}')) < 1, name
    with Image.open(run.path / 'curve.png') as picture:
        assert picture.size[0] > 400
        assert len(picture.convert('RGB').getcolors(1 << 20)) > 20
    assert f'written to {run}' in train.output
    assert 'lost 0' in train.output
    assert f'{run}/video.mp4: ' in train.output
    assert (run.path / 'video.mp4').stat().st_size > 10_000
    assert train.family() == []

    video = run.path / 'episode.mp4'
    evaluate = launch('ros2', 'launch', 'vdl_ros', 'evaluate.launch.py',
                      f'checkpoint:={run.checkpoint}', 'episodes:=20', f'video:={video}')
    assert evaluate.wait() == 0, evaluate.output
    line = next(line for line in evaluate.output.splitlines() if '20 episodes: mean' in line)
    # At random about 20. The last updates may have made it worse than in the episodes before.
    assert float(line.split('mean ')[1].split(',')[0]) > 100
    assert video.stat().st_size > 10_000


def test_ctrl_c_saves_and_resume_goes_on_from_there(launch, run):
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   'env_id:=CartPole-v1', 'total_steps:=100000000', 'stop_at_return:=1e9',
                   'learning_rate:=0.001', 'num_actors:=1')
    train.wait_for(lambda: run.steps > 10_000, 'progress')
    train.interrupt()
    assert train.wait() == 0, train.output
    assert train.family() == []
    first = run.summary
    assert first['ended_by'] == 'interrupted'
    assert first['agent_steps'] >= 10_000

    again = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'resume:={run}',
                   'num_actors:=1',
                   f'total_steps:={first["agent_steps"] + 10_000}')
    assert again.wait() == 0, again.output
    second = run.summary
    assert second['ended_by'] == 'total_steps'
    assert second['agent_steps'] - first['agent_steps'] in range(10_000, 13_000)
    assert second['updates'] > first['updates']
    assert second['trajectories_received'] > first['trajectories_received']
    assert second['learner_restarts'] == 0
    config = yaml.safe_load((run.path / 'config.yaml').read_text())
    assert config['learning_rate'] == 0.001, 'the settings of the run are kept'
    lines = (run.path / 'progress.csv').read_text().splitlines()[1:]
    steps = [int(line.split(',')[0]) for line in lines]
    assert steps == sorted(set(steps)), 'the progress goes on where it was left'


def test_environments_on_their_own_clock_report_reaction_time(launch, run, peer):
    received = peer.listen(MetricsMessage, '/statistics', qos.TOPICS['/statistics'])
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   'env_id:=CartPole-v1', 'num_actors:=1', 'realtime_fps:=100',
                   'action_delay:=0.04', 'random_observation_delay:=0.02',
                   'observe_last_actions:=6', 'status_period:=1.0', 'stop_at_return:=1e9')
    peer.until(lambda: {'reaction_time', 'late_actions'} <= {
        each.metrics_source for each in received}, 'reaction times')
    peer.until(lambda: run.steps, 'a row of progress')
    train.interrupt()
    assert train.wait() == 0, train.output
    found = run.summary
    figures = found['reaction_time_ms']
    # The delay, and what passes until the next step.
    assert figures['action_lag'] > 40.0
    assert figures['p50'] <= figures['p99']
    assert found['late_actions'] >= 0
    assert found['bytes_per_s'] > 0 < found['rewards_per_s']
    assert ' reaction ' in train.output
    assert ' late ' in train.output
    assert max(run.scalars('reaction_time/mean_ms')) > 40.0
    assert max(run.scalars('charts/rewards_per_s')) > 0


def test_each_node_runs_by_itself(launch, run):
    actor = launch('ros2', 'run', 'vdl_ros', 'actor')
    learner = launch('ros2', 'run', 'vdl_ros', 'learner', '--ros-args', '-p',
                     'env_id:=CartPole-v1', '-p', f'run_dir:={run}', '-p', 'total_steps:=5000')
    assert learner.wait() == 0, learner.output
    assert run.summary['agent_steps'] >= 5_000
    assert actor.process.poll() is None, 'an actor outlives its learner and waits for the next'
    actor.interrupt()
    assert actor.wait() == 0, actor.output


def test_the_two_halves_find_each_other(launch, run):
    actors = launch('ros2', 'launch', 'vdl_ros', 'actors.launch.py', 'num_actors:=3')
    learner = launch('ros2', 'launch', 'vdl_ros', 'learner.launch.py', f'run_dir:={run}',
                     'env_id:=vdl/Counter-v0', *SHORT)
    assert learner.wait() == 0, learner.output
    assert run.summary['env_id'] == 'vdl/Counter-v0'
    assert run.summary['trajectories_lost'] == 0
    assert len(actors.nodes('actor')) == 3
    actors.interrupt()
    assert actors.wait() == 0, actors.output
    assert actors.family() == []


def test_pong_loses_no_trajectory(launch, run):
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   'env_id:=ALE/Pong-v5', 'num_actors:=2', 'total_steps:=2000', 'seed:=1')
    assert train.wait() == 0, train.output
    assert run.summary['trajectories_lost'] == 0
    assert run.summary['agent_steps'] >= 2_000
    assert run.summary['policy_lag']['mean'] <= lag_bound(run)


@pytest.mark.parametrize('wanted', [None, 'SUBNET'])
def test_a_training_on_one_machine_keeps_to_itself_unless_told(launch, run, monkeypatch, wanted):
    monkeypatch.delenv(RANGE)
    if wanted:
        monkeypatch.setenv(RANGE, wanted)
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   'env_id:=CartPole-v1', 'num_actors:=1')
    actor = train.wait_for(lambda: train.nodes('actor'), 'an actor')[0]
    assert actor.environ()[RANGE] == (wanted or 'LOCALHOST')
    train.interrupt()
    assert train.wait() == 0, train.output


def test_arguments_are_shown_with_descriptions_and_defaults(launch):
    for file, some in (('train.launch.py', ('env_id', 'num_actors', 'total_steps', 'resume')),
                       ('learner.launch.py', ('batch_size',)),
                       ('actors.launch.py', ('num_actors', 'actor_id')),
                       ('evaluate.launch.py', ('checkpoint', 'episodes', 'video'))):
        shown = launch('ros2', 'launch', 'vdl_ros', file, '--show-args')
        assert shown.wait() == 0, shown.output
        for name in some:
            assert f"'{name}':" in shown.output, file
    assert "(default: '20')" in shown.output

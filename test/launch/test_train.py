"""The commands of the README: train and evaluate, on one host or two; what they write."""

import re

import pytest
import yaml
from PIL import Image


def test_cartpole_is_solved_and_everything_is_written(launch, run):
    train = launch.file('train', f'run_dir:={run}', 'env_id:=CartPole-v1', 'video:=true')
    assert train.wait() == 0, train.output
    found = run.summary
    assert found['mean_return_100'] >= 475
    assert (found['env_id'], found['algorithm']) == ('CartPole-v1', 'impala')
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    assert found['trajectories_received'] * 320 >= found['agent_steps'] > 10_000
    assert found['episodes'] > 100
    assert 0 <= found['policy_lag']['mean'] <= found['policy_lag']['max']
    assert 0 < found['message_age_ms']['p50'] <= found['message_age_ms']['p99']
    assert found['actor_restarts'] == found['learner_restarts'] == 0
    assert found['wall_s'] > 0
    assert found['steps_per_s'] > 0
    assert ' connected' in train.output, 'the learner logs how many actors there are'

    config = yaml.safe_load((run.path / 'config.yaml').read_text())
    assert config['env_id'] == 'CartPole-v1'
    assert config['learning_rate'] == 0.002, 'the preset for CartPole is resolved'
    assert len(config) > 30
    assert max(run.scalars('topics/trajectories/lost')) == 0
    for topic in ('trajectories', 'policy'):
        for name in ('age_mean_ms', 'age_max_ms', 'rate_hz'):
            assert 0 < max(run.scalars(f'topics/{topic}/{name}')) < 1e6, (topic, name)
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
    assert 'lost trajectories' not in train.output
    assert f'{run}/video.mp4: ' in train.output
    assert (run.path / 'video.mp4').stat().st_size > 10_000
    assert train.family() == []

    video = run.path / 'episode.mp4'
    evaluate = launch.file('evaluate', f'checkpoint:={run.checkpoint}', 'episodes:=20',
                           f'video:={video}')
    assert evaluate.wait() == 0, evaluate.output
    mean, = re.findall(r'20 episodes: mean ([\d.]+),', evaluate.output)
    # At random about 20. The last updates may have made it worse than in the episodes before.
    assert float(mean) > 100
    assert video.stat().st_size > 10_000


@pytest.mark.slow
def test_environments_on_their_own_clock_report_reaction_time(launch, run, peer):
    received = peer.listen('/statistics')
    train = launch.file('train', f'run_dir:={run}', 'env_id:=CartPole-v1', 'num_actors:=1',
                        'realtime_fps:=100', 'action_delay:=0.04',
                        'random_observation_delay:=0.02', 'observe_last_actions:=6',
                        'status_period:=1.0', 'stop_at_return:=1e9')
    peer.until(lambda: {'reaction_time', 'late_actions'} <= {
        each.metrics_source for each in received}, 'reaction times')
    peer.until(lambda: run.steps, 'a row of progress')
    train.stop()
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


def test_the_two_halves_find_each_other_and_actors_outlive_their_learner(
        launch, run, counters_module):
    actors = launch.file('actors', 'num_actors:=1', counters_module)
    learner = launch.file('learner', f'run_dir:={run}', counters_module, 'env_id:=vdl/Counter-v0',
                          'total_steps:=1000', 'stop_at_return:=1e9')
    assert learner.wait() == 0, learner.output
    assert run.summary['env_id'] == 'vdl/Counter-v0'
    assert run.summary['agent_steps'] >= 1_000
    assert run.summary['trajectories_lost'] == 0
    assert len(actors.nodes('actor')) == 1
    actors.stop()

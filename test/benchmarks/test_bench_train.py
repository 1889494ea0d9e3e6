"""bench_train: rates, figures, and errors."""

import math

import pytest
from builtin_interfaces.msg import Time
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType

from benchmarks import bench_train, graph


def test_steady_rate_excludes_the_warm_up_and_needs_rows_after_it():
    def rate(rows, start):
        return graph.steady_rate([graph.Row(*row) for row in rows], start)

    # Slow at first, then 100 a second.
    rows = [(5.0, 10), (10.0, 110), (12.0, 310), (15.0, 610)]
    assert rate(rows, 6.0) == 100.0
    assert rate(rows, 0.0) == 60.0
    for few in ([], [(1.0, 5)], [(1.0, 5), (9.0, 50)], [(3.0, 5), (3.0, 9)]):
        with pytest.raises(RuntimeError, match='are too few'):
            rate(few, 2.0)


def test_progress_has_whole_lines_and_the_mean_return_of_100_episodes(tmp_path):
    (tmp_path / 'progress.csv').write_text(
        'agent_steps,wall_s,mean_return_100,episodes\n640,0.5,nan,0\n1280,1.0,500.0,99\n'
        '1920,1.5,480.0,100\n2560,2.0,50')
    assert graph.progress_rows(tmp_path) == [
        (0.5, 640.0, -math.inf), (1.0, 1280.0, -math.inf), (1.5, 1920.0, 480.0)]
    assert graph.progress_rows(tmp_path / 'none') == []


def test_shares_are_means_of_the_reports_that_have_arrived_as_a_whole():
    reports = graph.Reports()

    def report(second, node, thread, **shares):
        for phase, share in shares.items():
            reports.add(MetricsMessage(
                measurement_source_name=f'/ns/{node}', metrics_source=f'time_{thread}_{phase}',
                unit='share', window_start=Time(sec=second), window_stop=Time(sec=second + 1),
                statistics=[StatisticDataPoint(
                    data_type=StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE, data=share)]),
                float(second))

    report(1, 'learner', 'training', learn=0.25)
    report(1, 'learner', 'callbacks', receive=1.0)
    report(1, 'actor_0', 'acting', step=1.0)
    report(2, 'learner', 'training', learn=0.25, wait=0.75)
    report(3, 'learner', 'training', learn=0.75, wait=0.25)
    report(3, 'learner', 'callbacks', receive=1.0)
    assert reports.shares(1.5) == {
        'learner': {'training': {'learn': 0.5, 'wait': 0.5}, 'callbacks': {'receive': 1.0}}}
    assert set(reports.shares(0.0, 1.5)) == {'actor_0'}
    assert reports.delivering() == 0
    report(4, 'actor_0', 'acting', publish=0.5, step=0.5)
    assert reports.delivering() == 1


def run(speed, lost=0, shares=None):
    """Return what one measurement of a run found."""
    summary = {
        'agent_steps': 1000, 'wire_bytes': {'in': 5000, 'out': 700},
        'trajectories_lost': lost, 'trajectories_rejected': 0}
    return {'steps_per_s': speed, 'summary': summary, 'time_shares': shares,
            'processes': {'learner': {'cpu_cores': 0.5, 'memory_mb': 200.0}}}


def one_round(speed, serial, *parts, lost=0, wait=0.25):
    shares = {'learner': {'training': {'learn': 1 - wait, 'wait': wait}}}
    found = {name: {'seconds_per_step': time, 'parameters': 77}
             for name, time in zip(('step', 'infer', 'learn'), parts, strict=True)}
    return found | {'graph': run(speed, lost, shares), 'serial': run(serial, shares={})}


@pytest.fixture
def found():
    rounds = [one_round(1000.0, 500.0, 1e-4, 2e-4, 2e-4, lost=1),
              one_round(3000.0, 600.0, 1e-4, 9e-4, 1e-4, wait=0.75),
              one_round(1500.0, 400.0, 3e-4, 1e-4, 9e-4, lost=2)]
    return bench_train.result(rounds, 2, 3)


def test_roofline_and_ratios_are_of_the_medians(found):
    assert (found['t_step_us'], found['t_infer_us'], found['t_learn_us']) == (100, 200, 200)
    assert found['roofline_steps_per_s'] == pytest.approx(2 / 5e-4)
    assert (found['steps_per_s'], found['serial_steps_per_s']) == (1500, 500)
    assert found['efficiency'] == pytest.approx(1500 / 4000)
    assert found['serial_ratio'] == 3.0


def test_losses_are_summed_shares_are_means_and_policies_count_for_each_actor(found):
    assert found['trajectories_lost'] == 3
    assert found['wire_bytes_per_step_in'] == 5.0
    assert found['wire_bytes_per_step_out'] == pytest.approx(3 * 0.7)
    shares = found['time_shares']['learner']['training']
    assert shares['wait'] == pytest.approx((0.25 + 0.75 + 0.25) / 3)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert found['processes']['learner'] == {'cpu_cores': 0.5, 'memory_mb': 200.0}


def test_settings_are_split_between_training_and_launch_and_override_the_preset():
    options, plan, settings = bench_train.arguments([
        '--env', 'CartPole-v1', '--num-envs', '3', '--quick', '--seconds', '8',
        '--set', 'discount:=0.5', '--set', 'learner_threads:=2'])
    assert plan.settings == {
        'unroll_length': '20', 'batch_size': '2', 'max_in_flight': '4',
        'env_id': 'CartPole-v1', 'num_envs': '3', 'discount': '0.5'}
    assert plan.more == {'learner_threads': '2'}
    assert (plan.warm_up, plan.seconds, plan.num_actors, options.rounds) == (2.0, 8.0, 2, 1)
    # The preset has the other settings.
    assert (settings['num_envs'], settings['discount']) == (3, 0.5)
    assert settings['learning_rate'] == 0.002

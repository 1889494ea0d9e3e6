"""bench_train: rates, figures, tables, and errors."""

import pytest

from benchmarks import bench_train, graph
from vdl_ros.ros.statistics.statistics import Share


def test_steady_rate_excludes_the_warm_up_and_needs_rows_after_it():
    rate = graph.steady_rate
    # Slow at first, then 100 a second.
    rows = [(5.0, 10), (10.0, 110), (12.0, 310), (15.0, 610)]
    assert rate(rows, 6.0) == 100.0
    assert rate(rows, 0.0) == 60.0
    for few in ([], [(1.0, 5)], [(1.0, 5), (9.0, 50)], [(3.0, 5), (3.0, 9)]):
        with pytest.raises(graph.TooFewRowsError, match='are too few'):
            rate(few, 2.0)


def test_node_has_reported_when_all_threads_sent_a_whole_report():
    def nodes(*shares):
        return graph.reporting_nodes(shares)

    learner = [Share('learner', 'callbacks', 'receive', 1.0, 1.0),
               Share('learner', 'training', 'learn', 1.0, 0.25),
               Share('learner', 'training', 'wait', 1.0, 0.75)]
    actor = [Share('actor_0', 'acting', 'step', 1.0, 0.5),
             Share('actor_0', 'acting', 'wait', 1.0, 0.5)]
    assert nodes() == nodes(*learner, *actor) == set()
    # From the middle of one report to the middle of the next.
    assert nodes(*learner[1:], *actor, *learner[:1]) == set()
    assert nodes(*learner[1:], *actor, *learner[:2]) == {'learner'}
    assert nodes(*learner[2:], *actor, *learner[:2]) == set()
    assert nodes(*learner[2:], *actor, *learner) == {'learner'}
    assert nodes(*learner, *actor, actor[0], learner[0]) == {'learner', 'actor_0'}


def run(speed, lost=0, shares=None):
    """Return what one measurement of a run found."""
    summary = {
        'agent_steps': 1000, 'wire_bytes': {'in': 5000, 'out': 700},
        'policy_lag': {'mean': 1.5, 'max': 3}, 'message_age_ms': {'p50': 2.0, 'p99': None},
        'trajectories_lost': lost, 'trajectories_rejected': 0}
    return {'steps_per_s': speed, 'summary': summary, 'foreign_cores': 0.25, 'time_shares': shares,
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
    assert [each['efficiency'] for each in found['rounds']] == pytest.approx(
        [1000 / 4000, 3000 * 1.1e-3 / 2, 1500 * 1.3e-3 / 2])


def test_losses_are_summed_shares_are_means_and_policies_count_for_each_actor(found):
    assert found['trajectories_lost'] == 3
    assert found['wire_bytes_per_step_in'] == 5.0
    assert found['wire_bytes_per_step_out'] == pytest.approx(3 * 0.7)
    assert found['wire_bytes_per_step'] == pytest.approx(7.1)
    assert found['policy_lag'] == {'mean': 1.5, 'max': 3}
    assert found['message_age_ms'] == {'p50': 2.0, 'p99': None}
    shares = found['time_shares']['learner']['training']
    assert shares['wait'] == pytest.approx((0.25 + 0.75 + 0.25) / 3)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert found['processes']['learner'] == {'cpu_cores': 0.5, 'memory_mb': 200.0}


def test_tables_have_all_rows_and_columns(found):
    text = bench_train.markdown(found | {
        'env': 'ALE/Pong-v5', 'network': 'nature', 'num_actors': 3, 'num_envs': 16,
        'unroll_length': 20, 'batch_size': 2, 'cores': 2})
    lines = text.splitlines()
    assert '| distributed | 1,500 | 0.38 |' in lines
    assert '| serial | 500 | 0.12 |' in lines
    assert 'network nature (77 parameters)' in text
    assert 'lost 3, rejected 0' in text
    rows = [line for line in lines if line.startswith('| learner')]
    assert rows == ['| learner | training |  |  |  |  |  |  | 58.3 | 41.7 |  | 0.50 | 200 |']


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

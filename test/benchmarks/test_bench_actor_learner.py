"""bench_actor_learner: shares of time, ratios, break-even, tables, and errors."""

import pytest

from benchmarks import bench_actor_learner as bench


def test_time_is_split_into_computation_and_communication():
    split = bench.split
    assert split({'acting': {'step': 0.25, 'infer': 0.125, 'encode': 0.0625, 'publish': 0.0625,
                             'wait': 0.5}}) == {
        'computation': 0.375, 'communication': 0.125, 'wait': 0.5, 'other': 0.0}
    # The waiting of the callbacks thread does not count; its work does.
    assert split({'callbacks': {'receive': 0.25, 'wait': 0.75},
                  'training': {'learn': 0.5, 'decode': 0.125, 'wait': 0.25, 'other': 0.125}}) == {
        'computation': 0.5, 'communication': 0.375, 'wait': 0.25, 'other': 0.125}


def run(speed, steps=1000, episodes=40, computation=0.5, kind='actor'):
    return {'steps_per_s': speed, 'agent_steps': steps, 'episodes': episodes,
            'trajectories_lost': 1, 'trajectories_rejected': 0, 'wire_bytes_per_step': speed,
            'foreign_cores': 0.0, 'time': {kind: {
                'computation': computation, 'communication': 0.25, 'wait': 0.125, 'other': 0.0}}}


@pytest.fixture
def found():
    return bench.cell([
        {'serial': run(100.0, kind='serial'), 'actor': run(200.0)},
        {'serial': run(400.0, kind='serial'), 'actor': run(400.0, computation=1.0)},
        {'serial': run(200.0, kind='serial'), 'actor': run(100.0)}])


def test_ratio_is_the_median_of_the_ratios_of_each_round(found):
    assert [found[mode]['steps_per_s'] for mode in ('serial', 'actor')] == [200, 200]
    assert 'ratio' not in found['serial']
    assert [found['actor'][name] for name in ('ratio', 'ratio_min', 'ratio_max')] == [1, 0.5, 2]
    assert found['actor']['time']['actor']['computation'] == pytest.approx(2 / 3)
    assert found['actor']['trajectories_lost'] == 3


def test_all_modes_have_episodes_of_the_same_length():
    seconds = bench.episode_seconds
    both = {'serial': {'steps_per_s': 100.0, 'agent_steps': 1000, 'episodes': 30},
            'actor': {'steps_per_s': 200.0, 'agent_steps': 1000, 'episodes': 50}}
    assert seconds(both) == {'serial': 200 * 25 / 100, 'actor': 200 * 25 / 200}
    # The limit, if no episode has ended or most of the steps are of an unfinished one.
    for episodes in (0, 1):
        assert seconds({'serial': {'steps_per_s': 100.0, 'agent_steps': 1000,
                                   'episodes': episodes}}) == {'serial': 200.0}


def test_break_even_is_interpolated_between_two_sizes():
    for points, size, says, again in (
            # Half way between logs: 2 and 1/2 are as far from 1: the geometric mean of the sizes.
            ([(1000, 2.0), (16000, 0.5)], 4000, 'crossed', False),
            ([(100, 2.0), (1000, 1.0)], None, 'not crossed', False),
            ([(100, 0.99), (1000, 0.5)], None, 'never paid', False),
            ([(10, 4.0), (160, 0.25), (1000, 1.5), (5000, 0.5)], 40, 'crossed', True)):
        assert bench.crossing(points) == {
            'bytes': size and pytest.approx(size), 'says': says, 'pays_again': again}, points
    even = bench.curve(4.0, {size: {'actor': {'ratio': ratio, 'ratio_min': ratio,
                                              'ratio_max': ratio}}
                             for size, ratio in ((16000, 0.5), (1000, 2.0))}, 'actor')
    assert even['break_even']['bytes'] == pytest.approx(4000)
    assert even['break_even']['bytes_per_ms'] == pytest.approx(1000)


def cases(*words):
    return bench.arguments(words)[1]


def test_cases_of_the_table_and_of_the_sweep():
    rows = cases('--only', 'table', '--env', 'CartPole-v1', 'Hopper-v5')
    assert [case.env_id for case in rows] == ['CartPole-v1', 'Hopper-v5']
    assert {case.modes for case in rows} == {('serial', 'actor', 'learner')}
    assert (rows[0].settings['time_limit'], rows[0].settings['learning_rate']) == ('100', '0.0')
    sweep = cases('--only', 'sweep', '--step-ms', '0.3', '8', '--sizes', '64', '8',
                  '--busy', '--sweep-inference', 'learner')
    assert [(case.step_ms, case.size) for case in sweep] == [(.3, 8), (.3, 64), (8, 8), (8, 64)]
    assert (sweep[3].env_id, sweep[3].modes) == ('dummy/OBS64-FPS125-BUSY-v0',
                                                 ('serial', 'learner'))


def test_failed_case_is_left_out_with_its_reason():
    done = []

    def measured(case, mode):
        done.append((case.env_id, mode))
        if case.env_id == 'b' and len(done) > 5:
            raise RuntimeError('it\nbroke')
        return {'steps_per_s': 1.0}

    problems = {}
    both = [bench.Case(name, {}, ('serial', 'actor')) for name in 'ab']
    found = bench.collect(both, 3, measured, problems)
    assert problems == {'b': 'it broke'}
    assert {case.env_id: len(rounds) for case, rounds in found.items()} == {'a': 3}
    # Each round begins with another mode.
    assert done == [('a', 'serial'), ('a', 'actor'), ('b', 'serial'), ('b', 'actor'),
                    ('a', 'actor'), ('a', 'serial'), ('b', 'actor'), ('a', 'serial'),
                    ('a', 'actor')]


def test_tables_have_all_rows_and_columns(found):
    lines = bench.markdown({
        'environments': {
            'Hopper-v5': {'cell': found, 'seconds': {'serial': 25.0, 'actor': 12.5}}},
        'break_even': [bench.curve(2.0, {100: found, 50: found}, 'actor'),
                       bench.curve(4.0, {50: found}, 'actor')],
        'busy': False, 'num_envs': 1, 'unroll_length': 20, 'batch_size': 2, 'rounds': 3,
        'seconds': 1.5, 'cores': 2, 'transport': 'shm', 'problems': {'Bad-v0': 'it broke'},
    }).splitlines()
    for line in (
            '| Hopper-v5 | 25 | 12.5 | 1.00 (0.50 to 2.00) | 1.81 / 0.8 / 1.3 | 2.26 | 1.39 |',
            '| 50 | 1.00 (0.50 to 2.00) | 1.00 (0.50 to 2.00) |',
            '2 ms: not crossed up to 100 bytes.', 'Bad-v0: it broke',
            '| 50 bytes, 4 ms | two actors, local | actor | 66.7 | 25.0 | 12.5 | 0.0 | 200 | 200 '
            '|'):
        assert line in lines
    for number in [number for number, line in enumerate(lines) if line.startswith('|---')]:
        assert len({line.count('|') for line in lines[number - 1:number + 2]}) == 1

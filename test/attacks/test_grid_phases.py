"""The grid's phases, commands, table and curves."""

import dataclasses
import math
import threading

import numpy as np
import pytest

from vdl_ros.attacks.grid import (
    BASELINE,
    Episodes,
    Grid,
    Trace,
    chain,
    choose,
    defence_phases,
    defence_table,
    figures,
    make_phases,
    markdown,
)
from vdl_ros.attacks.plots import draw_returns, draw_values, smoothed

PHASES = make_phases()
FGSM_OF_NOISE = 'frozen-fgsm-0.005-of-learned-random-0.1'


@pytest.fixture
def grid(tmp_path):
    return Grid(tmp_path, [tmp_path / 'a.pt', tmp_path / 'b.pt'], choose(PHASES, [FGSM_OF_NOISE]),
                1000, 200, {'num_envs': '4'}, log=lambda text: None)


def options(command):
    return dict(zip(command[3::2], command[4::2], strict=True))


def check_order(phases):
    """Each phase comes after the one that it begins with."""
    known = ['']
    for name, phase in phases.items():
        assert phase.after in known, name
        known.append(name)


def test_there_are_the_32_phases_each_after_the_one_that_it_begins_with():
    assert len(PHASES) == 32
    check_order(PHASES)
    counts = {name: sum(name in each for each in PHASES) for name in (
        'learned-random-', 'frozen-fgsm_', '-of-learned-', 'values-')}
    assert counts == {'learned-random-': 6 + 6, 'frozen-fgsm_': 6, '-of-learned-': 9, 'values-': 2}
    # Sizes are scaled, and values of another task replace those of Pong.
    phases = make_phases(50.0, (5.0, 7.0))
    assert len(phases) == 32
    assert phases['learned-random-25'].epsilon == 25.0
    assert phases['frozen-fgsm-0.5-of-learned-random-5'].epsilon == 0.5
    assert phases['frozen-fgsm_vf-0.05-above-5'].value_threshold == 5.0


def test_phases_are_chosen_with_those_that_they_build_on():
    names = [BASELINE, 'learned-random-0.1', FGSM_OF_NOISE]
    assert [phase.name for phase in choose(PHASES, [FGSM_OF_NOISE])] == names
    assert [phase.name for phase in chain(PHASES, FGSM_OF_NOISE)] == names


def test_a_phase_begins_with_the_policy_of_the_one_before(grid):
    first, second, third = (options(grid.command(2, phase)) for phase in grid.phases)
    assert first.items() >= {'--init': str(grid.policies[1]), '--freeze': 'true', '--seed': '2',
                             '--total_steps': '200'}.items()
    assert second.items() >= {'--freeze': 'false', '--adversarial_mode': 'random',
                              '--adversarial_epsilon': '0.1', '--total_steps': '1000'}.items()
    before = grid.folder(2, grid.phases[1].name) / 'checkpoint.pt'
    assert third.items() >= {'--init': str(before), '--adversarial_mode': 'fgsm',
                             '--num_envs': '4'}.items()


@pytest.mark.process
def test_what_follows_a_failed_phase_is_not_run(grid):
    grid.config(1).parent.mkdir()
    one = dataclasses.replace(grid, policies=grid.policies[:1])
    failures = list(one.run(1, threading.Event()))
    assert [each.split(':')[0] for each in failures] == [
        f'seed 1, {phase.name}' for phase in grid.phases]
    assert failures[0].endswith(f'; see {one.output}/seed-1/baseline.log')
    assert failures[1].endswith('not run: baseline failed')
    assert 'config' in (one.output / 'seed-1' / 'baseline.log').read_text()


def test_the_table_has_means_and_intervals_over_seeds():
    of = [{'mean_return_100': mean, 'episodes': 10} for mean in (8.0, 9.0, 10.0)]
    attacked = [{'mean_return_100': 4.5, 'episodes': 3, 'adversary': {'inject_share': 0.25}}]
    phases = [PHASES[name] for name in (BASELINE, 'frozen-fgsm-0.01', FGSM_OF_NOISE)]
    found = figures(phases, {BASELINE: of, 'frozen-fgsm-0.01': attacked})
    assert [each['phase'] for each in found] == [BASELINE, 'frozen-fgsm-0.01']
    assert found[0]['mean'] == 9.0
    assert found[0]['interval'] == pytest.approx(4.30 / math.sqrt(3))
    assert found[1]['interval'] is None
    assert markdown(found).splitlines()[2:] == [
        '| baseline | none |  |  | 3 | 9.0 | ± 2.5 | 30 | 0.0 |',
        '| baseline | fgsm | 0.01 | 25% | 1 | 4.5 |  | 3 | 4.5 |']


@pytest.mark.parametrize(('images', 'policies'), [(True, 7), (False, 5)])
def test_every_defence_meets_every_attack(images, policies):
    phases = defence_phases(2.0, images=images)
    check_order(phases)
    learned = [phase for phase in phases.values() if not phase.freeze]
    # The first policy without an attack is the baseline itself.
    assert len(phases) - len(learned) == policies * 5
    measured = [{**vars(phase), 'phase': name, 'mean': 1.0, 'interval': None}
                for name, phase in phases.items()]
    lines = defence_table(measured).splitlines()
    assert len(lines) == 2 + policies
    assert all(line.count('1.0') == 5 for line in lines[2:])
    assert lines[2].startswith('| baseline | 1.0 |')


def test_a_defence_keeps_its_smoothing_and_what_transfers_is_of_the_first_policy(tmp_path):
    phases = defence_phases(images=True)
    name = 'frozen-transfer-0.01-of-learned-smoothed'
    grid = Grid(tmp_path, [tmp_path / 'a.pt'], choose(phases, [name]), 1000, 200, {},
                log=lambda text: None)
    found = options(grid.command(1, phases[name]))
    assert found['--observation_smoothing'] == '1.0'
    assert found['--adversarial_checkpoint'] == str(tmp_path / 'a.pt')
    assert found['--init'] == str(grid.folder(1, 'learned-smoothed') / 'checkpoint.pt')
    assert '--adversarial_checkpoint' not in grid.command(1, phases['learned-smoothed'])


def test_figures_are_smoothed_and_written_in_three_forms(tmp_path):
    line = np.linspace(-3.0, 8.0, 400)
    assert smoothed(line) == pytest.approx(line)
    noise = np.random.default_rng(0).normal(size=400)
    assert np.abs(smoothed(line + noise)[60:-60] - line[60:-60]).max() < 0.5
    steps = np.arange(1.0, 300.0)
    phases = [Episodes('baseline', steps, np.sin(steps)), Episodes('none', steps[:0], steps[:0]),
              Episodes('fgsm', steps, -np.sin(steps))]
    draw_returns(phases, tmp_path / 'returns', title='T')
    trace = Trace('clean', np.cos(steps), steps, steps > 100)
    draw_values([trace], tmp_path / 'values', title='T')
    for name in ('returns', 'values'):
        for ending, magic in (('png', b'\x89PNG'), ('pdf', b'%PDF'), ('svg', b'<?xml')):
            assert (tmp_path / f'{name}.{ending}').read_bytes().startswith(magic)

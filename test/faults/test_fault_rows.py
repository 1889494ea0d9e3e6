"""The program of the fault matrix itself: which trials it makes, what its table says."""

from types import SimpleNamespace

import fault_rows
import pytest


@pytest.fixture
def row(tmp_path, monkeypatch):
    """Return a function that makes the trials of a row with six cases in 60 trials."""
    monkeypatch.setattr(fault_rows, 'FOLDER', tmp_path)

    def make(mode, fault_index=None):
        options = SimpleNamespace(faults=mode, fault_seed=1, fault_index=fault_index)
        return fault_rows.Trials(options, tmp_path, what='a fault', passes='it is survived',
                                 share=3, reduced=6, full=60, each=10)
    return make


def table():
    return fault_rows.table({'a fault': 'it is survived', 'another': 'x'},
                            fault_rows._read('full'))


def test_a_failure_is_reported_with_what_repeats_it_and_the_others_are_tried(row):
    tried = []

    def fails_once(index, rng):
        tried.append((index, rng.random()))
        assert index != 7, 'seven'
        return {'time (s)': float(index)}

    with pytest.raises(AssertionError, match='a fault: --fault-seed 1 --fault-index 7: .* seven'):
        row('full').run(fails_once)
    assert [index for index, _ in tried] == list(range(60))
    assert len({number for _, number in tried}) == 60
    assert table()[2:] == ['| a fault | it is survived | 600 | 1 |  | time (s) 59 |',
                           '| another | x | 0 | 0 |  |  |']
    first = tried[7]
    tried.clear()
    with pytest.raises(AssertionError):
        row('full', fault_index=7).run(fails_once)
    assert tried == [first]
    assert '| 600 | 1 |' in table()[2], 'a trial that is repeated alone is not counted again'


def test_full_trials_go_on_where_they_were_interrupted(row):
    tried = []

    def interrupted(index, _):
        if index == 40 and 40 not in tried:
            tried.append(index)
            raise KeyboardInterrupt
        tried.append(index)

    with pytest.raises(KeyboardInterrupt):
        row('full').run(interrupted)
    row('full').run(interrupted)
    assert tried == [*range(41), *range(40, 60)]
    assert table()[2] == '| a fault | it is survived | 600 | 0 | 0.005 |  |'


def test_a_share_is_spread_over_all_and_recorded_nowhere(row, tmp_path):
    tried = []
    row('share').run(lambda index, _: tried.append(index))
    assert tried == [0, 20, 40]
    assert list(tmp_path.iterdir()) == []


def test_what_the_commands_of_a_failed_trial_printed_is_kept(row, tmp_path, monkeypatch):
    monkeypatch.setattr(fault_rows, 'FOLDER', tmp_path / 'kept')

    def fails_once(index, _):
        (tmp_path / f'output-{index}.txt').write_text(f'of {index}')
        assert index != 7

    with pytest.raises(AssertionError):
        row('full').run(fails_once)
    kept, = (tmp_path / 'kept').glob('*.txt')
    assert kept.name == 'a_fault-1-7-output-7.txt'
    assert kept.read_text() == 'of 7'

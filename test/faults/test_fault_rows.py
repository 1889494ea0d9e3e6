"""The trials of the fault matrix are recorded and repeated, and go on where they were ended."""

from types import SimpleNamespace

import fault_rows
import pytest


def test_trials_are_recorded_and_repeated_and_go_on_where_they_were_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(fault_rows, 'FOLDER', tmp_path / 'kept')

    def row(mode, fault_index=None):
        """Return a row with six cases in 60 trials."""
        options = SimpleNamespace(faults=mode, fault_seed=1, fault_index=fault_index)
        return fault_rows.Trials(options, tmp_path, what='a fault', passes='it is survived',
                                 smoke=3, reduced=6, full=60, each=10)

    tried = []

    def fail_once(index, rng):
        tried.append((index, rng.random()))
        (tmp_path / f'output-{index}.txt').write_text(f'of {index}')
        assert index != 7, 'seven'
        if len(tried) == 40:
            raise KeyboardInterrupt
        return {'time (s)': float(index)}

    row('smoke').run(lambda index, rng: tried.append(index))
    assert tried == [0, 20, 40]
    assert not (tmp_path / 'kept').exists()
    tried.clear()
    with pytest.raises(KeyboardInterrupt):
        row('full').run(fail_once)
    row('full').run(fail_once)
    assert [index for index, _ in tried] == [*range(40), *range(39, 60)]
    assert len({number for _, number in tried}) == 60
    first = tried[7]
    tried.clear()
    with pytest.raises(AssertionError, match='a fault: --fault-seed 1 --fault-index 7: .* seven'):
        row('full', fault_index=7).run(fail_once)
    assert tried == [first]
    # One that is repeated alone is not counted again.
    lines = fault_rows.table({'a fault': 'it is survived'}, fault_rows._read('full'))
    assert lines[2:] == ['| a fault | it is survived | 600 | 1 |  | time (s) 59 |']
    kept, = (tmp_path / 'kept').glob('*.txt')
    assert (kept.name, kept.read_text()) == ('a_fault-1-7-output-7.txt', 'of 7')

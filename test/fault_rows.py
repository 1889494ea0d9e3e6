"""
Rows of the fault matrix (docs/faults.md): how often each is tried, what is recorded, their table.

A test with the mark ``fault_row`` and the fixture ``trials`` is a row. ``make faults`` tries each
row, ``make faults FULL=1`` more often, and continues where an earlier one ended. Other runs of
pytest leave out all rows but those with the number of trials ``smoke``.
"""

import json
import secrets
import shlex
import shutil
import time
import traceback
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

SMOKE, REDUCED, FULL = MODES = ('smoke', 'reduced', 'full')
# Results of `make faults`: a line for each trial, and the table.
FOLDER = Path(__file__).resolve().parents[1] / 'build' / 'faults'


def pytest_addoption(parser):
    group = parser.getgroup('faults')
    group.addoption('--faults', choices=MODES, default=SMOKE, help='how often rows are tried')
    group.addoption('--fault-seed', type=int, help='seed of all trials')
    group.addoption('--fault-index', type=int, help='only this trial of each row')


def pytest_configure(config):
    config.addinivalue_line(
        'markers', 'fault_row(what, passes, reduced, full, smoke=0, each=1): a row of the fault '
        'matrix, by number of trials; a trial tries ``each`` cases')
    mode = config.getoption('faults')
    if config.option.fault_seed is None:
        # The full counts are reached by several runs of the same trials.
        config.option.fault_seed = secrets.randbelow(10**6) if mode == REDUCED else 0
    if mode == REDUCED:
        _lines(mode).unlink(missing_ok=True)


def pytest_report_header(config):
    if config.getoption('faults') != SMOKE:
        return f'faults: {config.getoption("faults")}, seed {config.option.fault_seed}'
    return None


def pytest_collection_modifyitems(config, items):
    if config.getoption('faults') != SMOKE:
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
        return
    rows = [item for item in items if item.get_closest_marker('fault_row')
            and not _row_of(item).get('smoke')]
    config.hook.pytest_deselected(items=rows)
    items[:] = [item for item in items if item not in rows]


@pytest.fixture
def trials(request, tmp_path):
    return Trials(request.config.option, tmp_path, **_row_of(request.node))


def _row_of(item):
    mark = item.get_closest_marker('fault_row')
    return dict(zip(('what', 'passes'), mark.args, strict=True)) | mark.kwargs


class Trials:
    """The trials of one row; what commands print is in ``folder``, see the fixture ``launch``."""

    def __init__(self, options, folder, *, what, passes, reduced, full, smoke=0, each=1):
        self.mode, self._folder = options.faults, folder
        self._seed, self._what, self._each = options.fault_seed, what, each
        self._recorded = options.fault_index is None
        count = {SMOKE: smoke, REDUCED: reduced, FULL: full}[self.mode]
        # Spread over all, so that a few trials meet different cases of a list.
        self.indices = [index * full // count for index in range(count)]
        if options.fault_index is not None:
            self.indices = [options.fault_index]
        elif self.mode == FULL:
            done = {line['index'] for line in _read(self.mode) if line['what'] == what}
            self.indices = [index for index in self.indices if index not in done]

    def run(self, trial):
        """Make all trials, then fail if any failed.

        ``trial`` is called with its index, 0 to ``full`` - 1, and a numpy generator seeded by it.
        It raises an error, or returns figures by name, of which the table shows the largest.
        """
        failures = []
        started = time.monotonic()
        for count, index in enumerate(self.indices, start=1):
            rng = np.random.default_rng([self._seed, zlib.crc32(self._what.encode()), index])
            error, figures, before = '', {}, self._outputs()
            try:
                figures = trial(index, rng) or {}
            except Exception as raised:
                traceback.print_exc()
                error = ' '.join(f'{type(raised).__name__}: {raised}'.split())[:4000]
                failures.append(f'{self._what}: --fault-seed {self._seed} --fault-index {index}: '
                                f'{error}')
                self._keep(index, self._outputs() - before)
            if self.mode != SMOKE:
                if self._recorded:
                    self._record(index, error, figures)
                print(f'\r  {self._what}: {count} of {len(self.indices)}, {len(failures)} failed, '
                      f'{time.monotonic() - started:.0f} s', end='', flush=True)
        assert not failures, '\n'.join(failures)

    def _outputs(self):
        return set(self._folder.glob('output-*.txt'))

    def _keep(self, index, outputs):
        """Copy what the commands of a failed trial have printed: pytest soon removes it."""
        for path in outputs if self.mode != SMOKE else ():
            FOLDER.mkdir(parents=True, exist_ok=True)
            name = ''.join(each if each.isalnum() else '_' for each in self._what[:40])
            shutil.copy(path, FOLDER / f'{name}-{self._seed}-{index}-{path.name}')

    def _record(self, index, error, figures):
        FOLDER.mkdir(parents=True, exist_ok=True)
        line = {'what': self._what, 'index': index, 'seed': self._seed, 'cases': self._each,
                'error': error, 'figures': figures}
        with _lines(self.mode).open('a') as file:
            file.write(f'{json.dumps(line)}\n')


def _lines(mode):
    return FOLDER / f'{mode}.jsonl'


def _read(mode):
    try:
        return [json.loads(line) for line in _lines(mode).read_text().splitlines()]
    except FileNotFoundError:
        return []


def pytest_terminal_summary(terminalreporter, config):
    mode = config.getoption('faults')
    if mode == SMOKE:
        return
    rows = {row['what']: row['passes'] for row in map(
        _row_of, getattr(terminalreporter, '_session').items)}  # noqa: B009
    text = '\n'.join(table(rows, _read(mode)))
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f'{mode}.md').write_text(text + '\n')
    terminalreporter.write_line(text)
    terminalreporter.write_line(
        f'{shlex.quote(str(_lines(mode)))}: every trial, with its seed and error')


def table(rows, lines):
    """Return the lines of a Markdown table: when each row passes, and the recorded trials."""
    found = ['| what | passes when | trials | failures | bound | largest |',
             '|---|---|---|---|---|---|']
    for what, passes in rows.items():
        own = [line for line in lines if line['what'] == what]
        trials = sum(line['cases'] for line in own)
        failures = sum(bool(line['error']) for line in own)
        # Rule of three: with no failure in n trials, the rate is below 3/n with 95 %.
        bound = f'{3 / trials:.2g}' if trials and not failures else ''
        largest = Counter()
        for line in own:
            largest |= Counter(line['figures'])
        figures = ', '.join(f'{name} {value:.3g}' for name, value in largest.items())
        found.append(f'| {what} | {passes} | {trials:,} | {failures} | {bound} | {figures} |')
    return found

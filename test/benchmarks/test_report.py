"""What all benchmarks print: tables, or one JSON object."""

import argparse
import json

from benchmarks import report


def test_tables_leave_out_what_is_missing_also_in_brackets():
    rows = [{'n': 1, 'rate': 1234.4, 'seed': {'rate': 2.0}}, {'n': 2, 'rate': 5.0, 'seed': None},
            {'n': 3, 'rate': None}]
    assert report.columns({'n': '{n}', 'per s': '{rate:,.0f} ({seed[rate]:.1f})'}, rows) == [
        '| n | per s |', '|---|---|', '| 1 | 1,234 (2.0) |', '| 2 | 5 |', '| 3 |  |']


def test_the_object_is_printed_with_json_and_else_the_text(capsys):
    for as_json in (True, False):
        options = argparse.Namespace(json=as_json, output=None)
        report.deliver('x', {'rate': 2}, options, lambda found: f'rate {found["rate"]}')
        printed = capsys.readouterr().out
        assert (json.loads(printed)['rate'] == 2) if as_json else (printed == 'rate 2\n')

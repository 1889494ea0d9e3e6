"""The table of topic_stats: rows, figures, silent nodes, limits, output."""

import io
import math
import os

import pytest

from vdl_ros.ros.statistics.readers import Figures, Row, Screen, TopicTable, table_text
from vdl_ros.ros.statistics.statistics import AGE, LOSS, PERIOD, Window


def window(node='/learner', topic='/trajectories', metric=AGE, seconds=1.0, count=10, mean=2.0):
    return Window(node, topic, metric, seconds, count, mean, mean + 1, 0.5)


def names(table, now=0.0):
    return [(row.topic, row.node) for row in table.rows(now)]


def test_each_subscription_has_a_row_of_figures_sorted_by_topic_and_node():
    table = TopicTable(span_s=2.0)
    assert not table.has_rows()
    for node in ('/learner', '/actor_1', '/actor_0'):
        table.add(window(node, '/policy'), 0.0)
    table.add(window(metric=PERIOD), 0.0)
    table.add(window(metric=LOSS, count=7), 0.0)
    assert names(table) == [('/policy', '/actor_0'), ('/policy', '/actor_1'),
                            ('/policy', '/learner'), ('/trajectories', '/learner')]
    assert table.has_rows()
    assert table.left_out == 0
    for now, count in ((0.0, 100), (1.0, 10), (2.0, 30)):
        table.add(window(count=count), now)
    # Over the span, and losses since the start.
    figures = table.rows(2.5)[-1].figures
    assert (figures.samples, figures.rate_hz, figures.lost) == (40, 20.0, 7)
    # A node that reports less often than the table is printed keeps its last figures.
    figures = table.rows(4.9)[-1].figures
    assert (figures.samples, figures.lost) == (30, 7)


def test_topics_are_chosen_by_patterns():
    for patterns, found in (
            ('*', ['', '/arm/motors', '/policy', '/team/policy']),
            ('policy', ['/policy', '/team/policy']), ('/policy', ['/policy']),
            ('/team/*', ['/team/policy']), ('motors, x', ['/arm/motors']),
            ('arm/*', ['/arm/motors']), (' ,', []), ('[', [])):
        table = TopicTable(patterns)
        for topic in ('/policy', '/team/policy', '/arm/motors', ''):
            table.add(window(topic=topic), 0.0)
        assert [topic for topic, _ in names(table)] == found, patterns
        assert table.left_out == 0, patterns


def test_a_silent_node_is_marked_and_then_removed():
    for seconds, marked, removed in (
            (1.0, 3.0, 15.0), (2.0, 6.0, 30.0), (math.nan, 3.0, 15.0), (1e9, 180.0, 900.0)):
        table = TopicTable()
        table.add(window(seconds=seconds), 100.0)
        assert table.rows(100.0 + marked)[0].silent_s == 0, seconds
        row = table.rows(100.1 + marked)[0]
        assert row.silent_s == pytest.approx(marked + 0.1), seconds
        assert row.figures.samples == 10, 'the last figures stay in the row'
        assert len(table.rows(100.0 + removed)) == 1, seconds
        assert table.rows(100.1 + removed) == [], seconds
        table.add(window(seconds=seconds), 1e4)
        assert table.rows(1e4)[0].silent_s == 0, 'a node that reports again has a row again'


def test_malformed_reports_are_counted_and_silent_rows_removed():
    table = TopicTable()
    table.add(None, 0.0)
    assert (table.rows(0.0), table.left_out) == ([], 1)
    table.add(window(topic='/t'), 0.0)
    table.rows(1000.0)
    table.add(window(), 1000.0)
    assert names(table, 1000.0) == [('/trajectories', '/learner')]


def test_columns_are_aligned_and_unknown_values_are_dashes():
    rows = [Row('/policy', '/actor_0', Figures(12.34, 1.5, 0.25, 9.0, 1234)),
            Row('/trajectories', '/learner', Figures(3.0, 2.0, math.nan, 3.0, 6, 2), 4.4),
            Row('', 'listener', Figures(*[math.nan] * 4, 0))]
    assert table_text(rows, 3).splitlines() == [
        'topic          node      rate Hz  age ms  std ms  max ms  samples  lost',
        '/policy        /actor_0     12.3    1.50    0.25    9.00     1234     -',
        '/trajectories  /learner      3.0    2.00       -    3.00        6     2  silent for 4 s',
        '-              listener        -       -       -       -        0     -',
        '3 reports left out: malformed, or not of messages']

    assert table_text([]).startswith('nothing to show from /statistics: ')
    # Huge figures and long names keep lines short.
    text = table_text([Row('/t' * 500, '/n' * 500, Figures(1e300, -1e200, 0, 1e7, 2**53, 2**53))])
    assert max(map(len, text.splitlines())) < 200
    assert '1.0e+300' in text


class Terminal(io.StringIO):
    """A stream for which isatty() is true."""

    def isatty(self):
        return True


def test_a_terminal_is_overwritten_in_place_and_a_pipe_is_not(monkeypatch):
    monkeypatch.setattr('shutil.get_terminal_size', lambda **more: os.terminal_size((10, 4)))
    stream = Terminal()
    screen = Screen(stream)
    screen.show('one\ntwo')
    screen.show('long enough to wrap\n2\n3\n4\n5')
    screen.show('last')
    assert stream.getvalue() == (
        '\r\x1b[Jone\ntwo\n'
        '\x1b[2A\r\x1b[Jlong enou\n2\n3\n'
        '\x1b[3A\r\x1b[Jlast\n')
    # A pipe receives one text after another.
    stream = io.StringIO()
    screen = Screen(stream)
    screen.show('one\ntwo')
    screen.show('three')
    assert stream.getvalue() == 'one\ntwo\n\nthree\n'


def test_names_of_strangers_cannot_draw_on_the_terminal():
    table = TopicTable()
    table.add(window(node='/x\x1b[2J\n/forged', topic='/a\x9b2J'), 0.0)
    text = table_text(table.rows(0.0))
    assert text.replace('\n', '').isprintable()
    assert len(text.splitlines()) == 2
    assert r"'/x\x1b[2J\n/forged'" in text

"""What is made of reports: figures of topics, and the table of topic_stats and its output."""

import io
import math
import os

import numpy as np
import pytest

from vdl_ros.common.metrics import ACTING, TRAINING
from vdl_ros.ros.statistics.readers import (
    Figures,
    Row,
    Screen,
    TopicTable,
    combine,
    mean_shares,
    scalars,
    table_text,
)
from vdl_ros.ros.statistics.statistics import AGE, LOSS, PERIOD, Share, Window


def window(metric=AGE, seconds=1.0, count=10, mean=2.0, maximum=3.0, deviation=0.5,
           node='/learner', topic='/trajectories'):
    return Window(node, topic, metric, seconds, count, mean, maximum, deviation)


def unknown(*values):
    return all(math.isnan(each) for each in values)


def test_combined_windows_equal_one_long_window():
    values = np.random.default_rng(0).normal(5.0, 2.0, 100)
    windows = [window(count=len(part), mean=part.mean(), maximum=part.max(), deviation=part.std())
               for part in np.split(values, [20, 50])]
    found = combine([*windows, window(PERIOD, count=97)])
    assert found.age_mean_ms == pytest.approx(values.mean())
    assert found.age_std_ms == pytest.approx(values.std())
    assert found.age_max_ms == values.max()
    assert (found.samples, found.lost) == (100, None)
    assert found.rate_hz == pytest.approx(100 / 3)


def test_unknown_figures_are_nan_and_the_last_count_of_losses_is_the_total():
    found = combine([window(count=0), window(PERIOD, seconds=2.0, count=8, mean=250.0)])
    assert (found.rate_hz, found.samples) == (4.0, 8)
    assert unknown(found.age_mean_ms, found.age_std_ms, found.age_max_ms), 'without stamps'
    assert combine([window(count=0), window(PERIOD, count=0)]).rate_hz == 0
    assert combine([window(LOSS, count=2), window(LOSS, count=5)]).lost == 5
    found = combine([])
    assert unknown(found.rate_hz, found.age_mean_ms, found.age_std_ms, found.age_max_ms)
    assert (found.samples, found.lost) == (0, None)
    assert unknown(combine([window(seconds=math.nan)]).rate_hz)
    # Huge ages give NaN and no error.
    found = combine([window(count=2**53, mean=1e308, maximum=1e308, deviation=1e308),
                     window(mean=-1e308, deviation=1e308)])
    assert found.age_max_ms == 1e308
    assert unknown(found.age_mean_ms, found.age_std_ms)


def test_means_of_shares_are_weighted_by_time():
    shares = [Share('/a', ACTING, 'step', 1.0, 1.0), Share('/b', ACTING, 'step', 3.0, 0.5),
              Share('/a', ACTING, 'wait', 1.0, 0.0), Share('/b', ACTING, 'wait', 3.0, 0.5),
              Share('/c', TRAINING, 'learn', 9.0, 0.25)]
    assert mean_shares(shares) == {
        ACTING: {'step': 0.625, 'wait': 0.375}, TRAINING: {'learn': 0.25}}


def test_figures_of_a_topic_are_over_all_subscribers_and_unknown_ones_left_out():
    # Ages are over all, rates are averaged.
    assert scalars('policy', [[window(maximum=5.0), window(count=20, maximum=4.0)],
                              [window(mean=6.0, maximum=7.0)]]) == {
            'topics/policy/age_mean_ms': 3.0, 'topics/policy/age_max_ms': 7.0,
            'topics/policy/rate_hz': 12.5}
    # Losses are the sum of each subscriber's last count.
    assert scalars('x', [
        [window(LOSS, count=1), window(LOSS, count=3)], [window(LOSS, count=4)]]) == {
            'topics/x/lost': 7.0}
    assert scalars('x', []) == {}
    assert scalars('x', [[window(count=0), window(PERIOD, count=0)]]) == {'topics/x/rate_hz': 0.0}


def names(table, now=0.0):
    return [(row.topic, row.node) for row in table.rows(now)]


def test_each_subscription_has_a_row_of_figures_sorted_by_topic_and_node():
    table = TopicTable(span_s=2.0)
    assert not table.has_rows()
    for node in ('/learner', '/actor_1', '/actor_0'):
        table.add(window(node=node, topic='/policy'), 0.0)
    table.add(window(PERIOD), 0.0)
    table.add(window(LOSS, count=7), 0.0)
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
    table.add(None, 5.0)
    assert table.left_out == 1


def test_topics_are_chosen_by_patterns():
    for patterns, found in (
            ('*', ['', '/arm/motors', '/policy', '/team/policy']),
            ('policy', ['/policy', '/team/policy']), ('/policy', ['/policy']),
            ('/team/*', ['/team/policy']), ('motors, x', ['/arm/motors']), (' ,', []), ('[', [])):
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
    # Huge figures and long names keep lines short; names of strangers cannot draw on a terminal.
    text = table_text([Row('/t' * 500, '/x\x1b[2J\n/forged',
                           Figures(1e300, -1e200, 0, 1e7, 2**53, 2**53))])
    assert max(map(len, text.splitlines())) < 200
    assert '1.0e+300' in text
    assert text.replace('\n', '').isprintable()
    assert len(text.splitlines()) == 2
    assert r"'/x\x1b[2J\n/forged'" in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_is_overwritten_in_place_and_a_pipe_is_not(monkeypatch):
    monkeypatch.setattr('shutil.get_terminal_size', lambda **more: os.terminal_size((10, 4)))
    for stream, texts, shown in (
            (Terminal(), ('one\ntwo', 'long enough to wrap\n2\n3\n4\n5', 'last'),
             '\r\x1b[Jone\ntwo\n\x1b[2A\r\x1b[Jlong enou\n2\n3\n\x1b[3A\r\x1b[Jlast\n'),
            (io.StringIO(), ('one\ntwo', 'three'), 'one\ntwo\n\nthree\n')):
        screen = Screen(stream)
        for text in texts:
            screen.show(text)
        assert stream.getvalue() == shown

"""The soak's judgement: what grows is named, what only varies is not."""

import random

import soak

CHANCE = random.Random(1)


def series(minutes=60, **values):
    found = soak.Series()
    for sample in range(6 * minutes):
        found.add(sample / 6, **{name: value(sample / 6) for name, value in values.items()})
    return found


def varying(minute):
    return 100.0 + CHANCE.uniform(-10.0, 10.0)


def test_what_varies_about_the_same_value_has_not_grown():
    processes = {'actor': series(rss_mb=varying, fds=varying, threads=lambda _: 5)}
    assert soak.judge(processes, series(files=varying, mb=varying)) == []


def test_what_grows_is_named():
    flat = series(files=varying, mb=varying)
    processes = {
        'learner': series(rss_mb=lambda t: varying(t) + 1.2 * t, fds=varying, threads=varying),
        'viewer': series(rss_mb=lambda t: varying(t) + 0.8 * t, fds=lambda t: 20 + t // 20,
                         threads=lambda t: 5 + t // 20)}
    found = soak.judge(processes, flat)
    assert [line.partition(' by ')[0] for line in found] == [
        'learner: memory grows', 'viewer: fds grew', 'viewer: threads grew']
    shared = series(files=lambda t: 10 + t // 20, mb=lambda t: 100 + t)
    assert soak.judge({}, shared) == ['/dev/shm: files grew', '/dev/shm: mb grew']

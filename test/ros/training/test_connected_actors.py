"""The learner's lines about its actors."""

import itertools
import threading
from types import SimpleNamespace

from vdl_ros.rl.learning.flow_stats import FlowStats
from vdl_ros.ros.training.training import PATIENCE_S, ConnectedActors, Training, _Source

STATES = {}


def connected(needed, *more):
    """Return the lines that are logged, and who logs them."""
    lines = []
    return lines, ConnectedActors(
        SimpleNamespace(info=lines.append, warning=lines.append), 3, needed, lambda: (STATES, int),
        *more)


def test_a_change_is_logged_once_with_those_that_updates_wait_for():
    lines, actors = connected(2)
    for count in (0, 1, 1, 2, 2, 1):
        actors.report(count)
    waits = '; each update of a synchronous training waits for 2, the num_actors of this learner'
    assert lines == [f'1 actor is connected{waits}', '2 actors are connected',
                     f'1 actor is connected{waits}']


def test_actors_of_another_training_in_the_domain_do_not_count():
    lines, actors = connected(0)
    flow_stats, publishers = FlowStats(), 0
    node = SimpleNamespace(count_publishers=lambda name: publishers)
    source = SimpleNamespace(
        _subscription=SimpleNamespace(topic_name='trajectories'), _end_of_bag=None, _node=node,
        _connected=actors, _flow_stats=flow_stats)
    for name in ('', 'a', 'b'):
        publishers = 3
        if name:
            flow_stats.arrive(name, ord(name), 0)
        _Source.report(source)
    publishers = 0
    _Source.report(source)
    assert lines == ['1 actor is connected', '2 actors are connected', '0 actors are connected']


def test_the_discovery_range_is_named_if_no_actor_is_heard(monkeypatch):
    for value, scope in (('LOCALHOST', 'LOCALHOST'), ('', 'SUBNET')):
        monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', value)
        times = itertools.count(0.0, PATIENCE_S / 2)
        lines, actors = connected(0, times.__next__)
        for _ in range(4):
            assert not lines
            actors.report(0)
        assert len(lines) == 1
        assert lines[0].startswith('no actor is connected, nor does one say what it does')
        assert f"discovery range '{scope}'" in lines[0]
    # Actors that were there and went are only counted.
    lines, actors = connected(0, iter([0.0, 1.0, 100.0]).__next__)
    actors.report(1)
    actors.report(0)
    assert lines == ['1 actor is connected', '0 actors are connected']


def test_what_actors_do_is_named_ever_less_often_while_none_is_connected(monkeypatch):
    monkeypatch.setitem(STATES, 'b', 'makes 16 x Slow-v0')
    monkeypatch.setitem(STATES, 'a', 'waits for a policy')
    lines, actors = connected(0, itertools.count(0.0, PATIENCE_S).__next__)
    numbers = []
    for number in range(20):
        actors.report(0)
        if len(lines) > len(numbers):
            numbers.append(number)
    assert set(lines) == {'no actor is connected: a waits for a policy; b makes 16 x Slow-v0; '
                          '1 of 3 start, hang or have ended, as their lines say'}
    waits = [after - before for before, after in itertools.pairwise(numbers)]
    assert len(waits) >= 2
    assert waits == sorted(set(waits))


def test_actors_wait_while_the_learner_receives_or_makes_an_update():
    told, trainer, inbox = [], SimpleNamespace(busy=False), SimpleNamespace(waiting=0)
    learner = SimpleNamespace(
        _ends=threading.Event(), _trainer=trainer, _received=0,
        _source=SimpleNamespace(report=lambda: None, inbox=inbox),
        _flow_stats=SimpleNamespace(received=0, holders=[]),
        _busy=SimpleNamespace(publish=told.append),
        _settings=SimpleNamespace(learner_id='a/b', train=SimpleNamespace(synchronous=True)))

    def tells(**state):
        told.clear()
        trainer.busy, inbox.waiting = state.get('busy', False), state.get('waiting', 0)
        learner._flow_stats.received = state.get('received', 1)
        Training._report_busy(learner)
        return [list(message.start_ids) for message in told]

    assert tells(received=1) == [[]], 'all'
    assert not tells(), 'what it lacks is lost'
    assert tells(waiting=1) == tells(busy=True) == [[]]
    learner._flow_stats.holders = [5]
    assert tells(busy=True) == [[]]
    assert tells() == [[5]], 'they wait for the others'
    learner._settings.train.synchronous = False
    assert not tells(), 'it may need more of them'

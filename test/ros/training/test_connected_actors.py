"""The learner's lines about its actors."""

from types import SimpleNamespace

from vdl_ros.ros.training.training import PATIENCE_S, ConnectedActors


def connected(needed, *more):
    """Return the lines that are logged, and who logs them."""
    lines = []
    return lines, ConnectedActors(
        SimpleNamespace(info=lines.append, warning=lines.append), needed, *more)


def test_a_change_is_logged_once_with_those_that_updates_wait_for():
    lines, actors = connected(2)
    for count in (0, 1, 1, 2, 2, 1):
        actors.report(count)
    waits = '; each update of a synchronous training waits for 2, the num_actors of this learner'
    assert lines == [f'1 actor is connected{waits}', '2 actors are connected',
                     f'1 actor is connected{waits}']


def test_the_discovery_range_is_named_once_if_no_actor_comes(monkeypatch):
    for value, scope in (('LOCALHOST', 'LOCALHOST'), ('', 'SUBNET')):
        monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', value)
        times = iter([0.0, 0.0, PATIENCE_S + 1.0, PATIENCE_S + 2.0])
        lines, actors = connected(0, times.__next__)
        actors.report(0)
        assert not lines
        actors.report(0)
        actors.report(0)
        assert len(lines) == 1
        assert f"no actor is connected; discovery range '{scope}'" in lines[0]
    # Actors that were there and went are only counted.
    lines, actors = connected(0, iter([0.0, 1.0, 100.0]).__next__)
    actors.report(1)
    actors.report(0)
    assert lines == ['1 actor is connected', '0 actors are connected']

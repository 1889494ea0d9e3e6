"""The learner's lines about its actors."""

from vdl_ros.ros.training.training import PATIENCE_S, ConnectedActors


class Logger:
    """Keeps what is logged."""

    def __init__(self):
        self.lines = []

    def info(self, text):
        self.lines.append(text)

    warning = info


def test_a_change_is_logged_once_with_those_that_updates_wait_for():
    logger = Logger()
    actors = ConnectedActors(logger, 2)
    for count in (0, 1, 1, 2, 2, 1):
        actors.report(count)
    waits = '; each update of a synchronous training waits for 2, the num_actors of this learner'
    assert logger.lines == [f'1 actor is connected{waits}', '2 actors are connected',
                            f'1 actor is connected{waits}']


def test_the_discovery_range_is_named_once_if_no_actor_comes(monkeypatch):
    for value, scope in (('LOCALHOST', 'LOCALHOST'), ('', 'SUBNET')):
        monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', value)
        logger, now = Logger(), [0.0]
        actors = ConnectedActors(logger, 0, lambda now=now: now[0])
        actors.report(0)
        assert not logger.lines
        now[0] = PATIENCE_S + 1.0
        actors.report(0)
        actors.report(0)
        assert len(logger.lines) == 1
        assert f"no actor is connected; discovery range '{scope}'" in logger.lines[0]
    # Actors that were there and went are only counted.
    logger, now = Logger(), [0.0]
    actors = ConnectedActors(logger, 0, lambda: now[0])
    actors.report(1)
    now[0] = 100.0
    actors.report(0)
    assert logger.lines == ['1 actor is connected', '0 actors are connected']

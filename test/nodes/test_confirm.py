"""A person's confirmation, where no robot is there that could take it."""

from vdl_ros.nodes import confirm


def test_a_confirmation_that_nobody_takes_is_said_and_ends(node_here, peer, monkeypatch):
    monkeypatch.setattr(confirm, '_TELL_S', 0.0)
    monkeypatch.setattr(confirm, '_PATIENCE_S', 0.5)
    person = node_here(confirm.ConfirmNode)
    peer.until(lambda: not person.is_running, 'its end')
    assert person.end() == 1
    for line in ('waits for a robot', '/robot/confirm: nobody answers'):
        assert line in person.output

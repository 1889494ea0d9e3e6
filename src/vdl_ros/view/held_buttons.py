"""
Which motors the people at the browsers hold on.

A browser repeats a button that is held and falls silent when it is let go, when its tab is closed,
when the network is gone: silence is what switches a motor off.
"""

from __future__ import annotations

from vdl_ros.arm.model.joints import JOINTS

__all__ = ['HeldButtons']


class HeldButtons:
    """Buttons of any number of browsers; times are seconds of one clock."""

    def __init__(self, timeout: float) -> None:
        """
        Begin with none held.

        Args:
            timeout: after so long without its repetition a button is let go, s.
        """
        self._timeout = timeout
        self._held: dict[tuple[int, str, int], float] = {}

    def hold(self, client: int, joint: str, direction: int, now: float) -> None:
        """Note that a client holds a joint's button, 1 or -1, still or anew."""
        self._held[client, joint, direction] = now

    def release(self, client: int, joint: str, direction: int) -> None:
        """Note that it is let go."""
        self._held.pop((client, joint, direction), None)

    def forget(self, client: int | None = None) -> None:
        """Let go what a client holds; None: what all hold."""
        self._held = {key: at for key, at in self._held.items()
                      if client is not None and key[0] != client}

    def directions(self, now: float) -> list[int] | None:
        """Return -1, 0 or 1 for each joint; None if nobody holds any button."""
        self._held = {key: at for key, at in self._held.items() if now - at <= self._timeout}
        if not self._held:
            return None
        found = [0] * len(JOINTS)
        for _, joint, direction in self._held:
            found[JOINTS.index(joint)] += direction
        # Who pull at both ends get nothing.
        return [max(-1, min(1, each)) for each in found]

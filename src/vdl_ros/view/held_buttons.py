"""
Buttons held in the browsers, and the motor directions they command.

A browser repeats the event of a held button. The events end when the button is released, the tab
is closed or the network fails: their absence switches the motor off.
"""

from __future__ import annotations

from vdl_ros.arm.model.joints import JOINTS

__all__ = ['HeldButtons']


class HeldButtons:
    """Buttons of any number of browsers; times are seconds of one clock."""

    def __init__(self, timeout: float) -> None:
        """
        Start without held buttons.

        Args:
            timeout: a button without repetition for this time is released, s.
        """
        self._timeout = timeout
        self._held: dict[tuple[int, str, int], float] = {}

    def hold(self, client: int, joint: str, direction: int, now: float) -> None:
        """Record that a client holds a joint's button, 1 or -1."""
        self._held[client, joint, direction] = now

    def release(self, client: int, joint: str, direction: int) -> None:
        """Record that a client released a button."""
        self._held.pop((client, joint, direction), None)

    def release_all(self, client: int | None = None) -> None:
        """Release all buttons of a client; None: of all clients."""
        self._held = {key: at for key, at in self._held.items()
                      if client is not None and key[0] != client}

    def directions(self, now: float) -> list[int] | None:
        """Return -1, 0 or 1 for each joint; None if no button is held."""
        self._held = {key: at for key, at in self._held.items() if now - at <= self._timeout}
        if not self._held:
            return None
        found = [0] * len(JOINTS)
        for _, joint, direction in self._held:
            found[JOINTS.index(joint)] += direction
        # Opposite buttons cancel each other.
        return [max(-1, min(1, each)) for each in found]

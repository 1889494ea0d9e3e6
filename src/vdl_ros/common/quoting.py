"""Text from messages and bags, quoted for a log line."""

from __future__ import annotations

__all__ = ['quoted', 'shown']


def quoted(value: object, limit: int = 80) -> str:
    """
    Return the ``repr`` of ``value``, at most ``limit`` characters long.

    Names come from other processes. Printed as they are, they could clear the terminal, forge a
    line of the log, or fill it.
    """
    # Cut first: the repr of a long text takes as long as the text.
    text = repr(value[:limit] if isinstance(value, str | bytes) else value)
    text = ' '.join(text.splitlines())  # that of a tensor has several
    whole = len(text) <= limit and not (
        isinstance(value, str | bytes) and len(value) > limit)
    return text if whole else f'{text[:limit - 3]}...'


def shown(text: str, limit: int = 80) -> str:
    """
    Return ``text`` as it is if it is printable and at most ``limit`` characters long, else quoted.

    For names and sentences that are usually harmless and read better without quotes.
    """
    return text if len(text) <= limit and text.isprintable() else quoted(text, limit)

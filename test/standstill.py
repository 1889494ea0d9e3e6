"""Nodes that stand still, as a process that is stopped does: :func:`standing_still`."""

import contextlib
import threading

from processes import until


@contextlib.contextmanager
def standing_still(node):
    """Let the executor of a node of this process run nothing during the block."""
    stands, goes_on = threading.Event(), threading.Event()

    def stand():
        stands.set()
        goes_on.wait()

    # Its thread may not have begun yet.
    until(lambda: node.executor, 'its executor').create_task(stand)
    stands.wait()
    try:
        yield
    finally:
        goes_on.set()

"""One process of bench_transport, server or client: a line of JSON in, a line of JSON out.

Arguments: FAMILY ROLE INDEX TOTAL WHERE PORT. The first line it writes describes it. Then, for
each cell that it reads, it writes ``{"ready": true}``, reads ``{"go": true}`` and writes the
measurement. It ends with its standard input, or by SIGINT.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from vdl_ros.ros.process import die_with_parent


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        way: ``tcp`` or ``dds``.
        task: ``throughput`` or ``round_trip``.
        size: bytes of data in a packet.
        packets: that each client sends.
        window: packets that a client may have under way over DDS; TCP has the kernel's window.
        limit: s after which a missing packet is lost.
        token: different in each measurement, so that late packets are ignored.
    """

    way: str
    task: str
    clients: int
    size: int
    packets: int
    window: int
    limit: float
    token: int


def _make(words: list[str]) -> Any:
    family, role, index, total, where, port = words
    if family == 'tcp':
        from benchmarks.transport.tcp import TcpClient, TcpServer
        return (TcpServer(int(total), where) if role == 'server'
                else TcpClient(int(index), where, int(port)))
    from benchmarks.transport.dds import DdsClient, DdsServer
    return DdsServer(int(total), where) if role == 'server' else DdsClient(int(index), where)


def _serve(link: Any, requests: TextIO, reply: Callable[[dict[str, Any]], None]) -> None:
    reply(link.hello())
    for line in requests:
        run = link.prepare(Cell(**json.loads(line)))
        reply({'ready': True})
        if not requests.readline():
            return
        before = time.process_time()
        found = run()
        reply(found | {'cpu_s': time.process_time() - before})


def main() -> int:
    """Serve requests from standard input."""
    words = sys.argv[1:]
    die_with_parent()
    # Libraries may write to standard output: send that to standard error.
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)

    def reply(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + '\n')
        answers.flush()

    link = None
    try:
        link = _make(words)
        _serve(link, sys.stdin, reply)
    except (OSError, ValueError) as error:
        reply({'error': f'{words[0]} {words[1]} {words[2]}: {error}'})
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        # Its parent may interrupt what ends by itself.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if link is not None:
            link.close()
    return 0

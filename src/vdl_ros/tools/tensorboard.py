"""``ros2 run vdl_ros tensorboard FOLDER``: serve TensorBoard for runs, to this machine only.

It listens on 127.0.0.1, prints its address, and ends with Ctrl-C. A foreign name of this machine
in a browser (DNS rebinding) is refused, as by the views. ``--port`` chooses the port,
``--with-parent`` ends it also when the process that started it dies.

Exit status: 2 if TensorBoard is not installed or the port cannot be used.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vdl_ros.common.command_line import (
    EXIT_BAD_INPUT,
    OneLineParser,
    stop_on_signals,
    whole_number,
)
from vdl_ros.ros.process import die_with_parent, lower_priority

HOST = '127.0.0.1'
# Period of reading the files again, s.
RELOAD_S = 5


def own_host(answer: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application that refuses a Host that is not of this machine."""
    def checked(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host = request.get('HTTP_HOST', '').lower().removesuffix(f':{request["SERVER_PORT"]}')
        if host in (HOST, 'localhost'):
            return answer(request, start)
        start('403 Forbidden', [])
        return [b'Host is not allowed']
    return checked


def main(args: Sequence[str] | None = None) -> int:
    parser = OneLineParser(
        prog='tensorboard', description='Serve TensorBoard for runs, to this machine only.')
    parser.add_argument('folder', help='of a run, or of several')
    parser.add_argument('--port', type=whole_number(0, 65535), default=0,
                        help='default: any free one')
    parser.add_argument('--with-parent', action='store_true',
                        help='end when the process that started it dies')
    options = parser.parse_args(args)
    stop = stop_on_signals()
    if options.with_parent:
        die_with_parent()
    lower_priority()
    try:
        from tensorboard import program
    except ImportError:
        print('tensorboard: not installed: pip install tensorboard', file=sys.stderr)
        return EXIT_BAD_INPUT
    board = program.TensorBoard(
        server_class=lambda answer, flags: program.WerkzeugServer(own_host(answer), flags))
    # load_fast would start a server in another process.
    board.configure(
        logdir=options.folder, host=HOST, port=options.port, load_fast='false',
        reload_interval=RELOAD_S)
    try:
        url = board.launch()
    except program.TensorBoardServerException as error:
        reason = ' '.join(str(error).split())
        print(f'tensorboard: {HOST}:{options.port} cannot be used: {reason}', file=sys.stderr)
        return EXIT_BAD_INPUT
    print(f'TensorBoard: {url}', flush=True)
    stop.wait()
    return 0

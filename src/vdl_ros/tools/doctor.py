"""``ros2 run vdl_ros doctor``: check this machine and print remedies.

Each line is one check of ``vdl_ros.ros.checks``; the last one measures messages between two
processes over the configured transport. Topics: ``vdl_doctor_PID/ping`` and ``pong``,
std_msgs/UInt8MultiArray, reliable and latched. No parameters; options: ``--json``, ``--clean``.

``doctor --peer HOST`` checks the way between this machine and HOST instead, on which
``doctor --answer`` runs (``vdl_ros.ros.checks.peer``).

Exit status: 0 if no check failed, 1 if one did, 2 for input that cannot be used.
"""

import dataclasses
import json
import os
import sys

from vdl_ros.common.command_line import EXIT_BAD_INPUT, OneLineParser, whole_number
from vdl_ros.ros import checks
from vdl_ros.ros.checks import peer
from vdl_ros.ros.checks.machine import amount
from vdl_ros.ros.dds import transport
from vdl_ros.ros.dds.shared_memory import clean_stale_shared_memory
from vdl_ros.ros.environment import domain_id

COLOURS = {'ok': '\033[32m', 'warn': '\033[33m', 'fail': '\033[31m'}


def report(findings: list[checks.Finding], colour: bool) -> str:
    width = max((len(item.name) for item in findings), default=0)
    lines = []
    for item in findings:
        status = f'{item.status:4}'
        if colour:
            status = f'{COLOURS[item.status]}{status}\033[0m'
        advice = f' -> {item.advice}' if item.advice else ''
        lines.append(f'{status} {item.name:{width}}  {item.finding}{advice}')
    return '\n'.join(lines)


def main(args: list[str] | None = None) -> int:
    parser = OneLineParser(
        prog='doctor', description='Check this machine; measure messages between two processes.')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    parser.add_argument('--clean', action='store_true',
                        help='first remove shared memory of killed processes')
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument('--peer', metavar='HOST',
                       help='check the way to HOST, on which `doctor --answer` runs')
    hosts.add_argument('--answer', nargs='?', const='', metavar='HOST',
                       help='answer `doctor --peer` of HOST, or of any host, until Ctrl-C')
    parser.add_argument('--port', type=whole_number(1024, 65535), default=peer.PORT,
                        help=f'TCP port of --peer and --answer (default {peer.PORT})')
    try:
        arguments = _remove_ros_arguments(sys.argv[1:] if args is None else args)
    except RuntimeError as error:  # of rclpy: malformed ROS arguments
        parser.error(str(error))
    options = parser.parse_args(arguments)

    cleaned = None
    if options.clean:
        files, size = clean_stale_shared_memory()
        cleaned = {'files': files, 'bytes': size}
        if not options.json:
            print(f'removed {files} files of dead processes, {amount(size)}')
    system = checks.System(environ=dict(os.environ))
    chosen = checks.CHECKS
    two_hosts = options.peer is not None or options.answer is not None
    try:
        if two_hosts:
            domain_id(system.environ)
        transport.configure()
    except (ValueError, OSError) as error:
        # check_transport reports it too; the loop-back would measure another transport.
        chosen = tuple(check for check in chosen if check is not checks.check_loopback)
        print(f'doctor: {error}', file=sys.stderr)
        if two_hosts:
            return EXIT_BAD_INPUT
    if options.answer is not None:
        return _answer(options.answer, options.port)
    if options.peer is None:
        findings = checks.run(system, chosen)
    else:
        findings = peer.run(options.peer, options.port, system)
    healthy = all(item.status != 'fail' for item in findings)
    if options.json:
        print(json.dumps({'ok': healthy, 'cleaned': cleaned,
                          'findings': [dataclasses.asdict(item) for item in findings]}, indent=2))
    else:
        print(report(findings, sys.stdout.isatty()))
    return 0 if healthy else 1


def _answer(host: str, port: int) -> int:
    try:
        peer.serve(host, port, lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        print(f'doctor: {error}', file=sys.stderr)
        return EXIT_BAD_INPUT


def _remove_ros_arguments(arguments: list[str]) -> list[str]:
    try:
        from rclpy.utilities import remove_ros_args
    except ImportError:  # the doctor also runs without ROS
        return arguments
    others: list[str] = remove_ros_args(args=['doctor', *arguments])[1:]
    return others


if __name__ == '__main__':
    sys.exit(main())

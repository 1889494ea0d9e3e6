"""Runs on each host of a cluster for one request: starts, finds, follows and ends its tasks.

``ssh`` starts it, writes one request as a line of JSON to its standard input, and reads its
answer: lines that begin with ``vdl_ros`` and a space, then JSON. A task runs in a session of its
own and goes on when the connection is lost. Its processes are found again by a variable of their
environment, which descendants inherit, so no other process is taken for one of them, whatever
numbers processes get; and those that one of them has started without it by their parent.

Only the standard library is used, so that a request costs little.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PREFIX = b'vdl_ros '
#: Environment variable of every process of a task; its value is CLUSTER/TASK.
MARK = 'VDL_CLUSTER_TASK'
#: Variables of the shell that would add to how the tasks discover each other.
NOT_INHERITED = ('ROS_STATIC_PEERS', 'ROS_DISCOVERY_SERVER', 'ROS_SUPER_CLIENT')
# Outlives signals that end the task, and notes its exit status.
_WRAPPER = 'trap : INT TERM; "$@"; echo $? > "$0"'
_TERM_GRACE_S, _KILL_GRACE_S = 10.0, 30.0
#: Of the log, in one report of a task, and of a log that is brought home: its end.
REPORT_BYTES, LOG_BYTES = 65536, 1 << 28
_PERIOD_S = 1.0
# In the folder of the cluster: where the run is whose learner is on this host.
_RUN = 'run_dir'
#: Files of a run, see docs/runs.md, that are brought home, and those of trackers.
RUN_FILE = re.compile(
    r'[\w-]+\.(pt|npz|yaml|csv|json|png|mp4)|events\.out\.tfevents\.[\w.-]+|'
    r'\.\w+_run_id|(wandb|mlruns)(/[\w@=+-][\w.@=+-]*)+', re.ASCII)


def main() -> int:
    try:
        request = json.loads(sys.stdin.buffer.readline())
        kind, cluster, tasks = (request[name] for name in ('request', 'cluster', 'tasks'))
    except (ValueError, KeyError, TypeError):
        print('host_agent: no request', file=sys.stderr)
        return 2
    names = [task['name'] for task in tasks]
    match kind:
        case 'start':
            _answer(start(cluster, tasks))
        case 'status':
            _answer(states(cluster, names))
        case 'stop':
            _answer(stop(cluster, names, request['timeout']))
        case 'follow':
            _follow(cluster, names, request['offsets'])
        case 'files':
            _send_files(cluster, names, request.get('run_dir', ''))
    return 0


def folder(cluster: str) -> Path:
    """Return the folder with logs and exit statuses of a cluster's tasks on this host."""
    home = Path(os.environ.get('ROS_HOME') or Path.home() / '.ros')
    return home / 'vdl_ros' / 'cluster' / cluster


def find_processes(cluster: str, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the running processes of each task, the one that was started first at the front."""
    wanted = {f'{MARK}={cluster}/{name}'.encode(): name for name in names}
    # By number: parent and time of the start of each process of this user, and their tasks.
    every: dict[int, tuple[int, int]] = {}
    tasks: dict[int, str] = {}
    for entry in os.scandir('/proc'):
        if not entry.name.isdecimal():
            continue
        try:
            name = next((wanted[each] for each in _variables(entry.path) if each in wanted), None)
            fields = Path(entry.path, 'stat').read_text().rpartition(')')[2].split()
        except OSError:
            continue  # of another user, or it has just ended
        every[int(entry.name)] = int(fields[1]), int(fields[19])
        if name is not None:
            tasks[int(entry.name)] = name
    # Parents come before their children.
    in_order = sorted(every, key=lambda pid: (every[pid][1], pid))
    for pid in in_order:
        if pid not in tasks and (parent := every[pid][0]) in tasks:
            tasks[pid] = tasks[parent]
    return {name: [pid for pid in in_order if tasks.get(pid) == name] for name in names}


def _variables(process: str) -> list[bytes]:
    """Return the environment of a process; raise OSError if it has ended or is not readable."""
    for _ in range(100):
        if text := Path(process, 'environ').read_bytes():
            return text.split(b'\0')
        # Empty also while the program begins; one that has ended, or is the kernel's, has none.
        os.readlink(f'{process}/exe')
        time.sleep(0.001)
    return []


def states(cluster: str, names: Sequence[str]) -> dict[str, Any]:
    """Return what each task does.

    ``state`` is ``running``, ``ended`` (with ``status``), ``gone`` (it ended without a status,
    because it was killed or the host was restarted) or ``absent`` (not started); ``pid`` that of
    its first process; ``line`` the last one of its log.
    """
    running = find_processes(cluster, names)
    found = {}
    for name in names:
        log = folder(cluster) / f'{name}.log'
        lines = [line.strip() for line in _news(log, 0)[0].splitlines() if line.strip()]
        state: dict[str, Any] = {'state': 'absent', 'pid': 0, 'status': None,
                                 'line': lines[-1][-500:] if lines else ''}
        if running[name]:
            state.update(state='running', pid=running[name][0])
        elif log.exists():
            try:
                state.update(state='ended', status=int(_status_file(cluster, name).read_text()))
            except (OSError, ValueError):
                state.update(state='gone')
        found[name] = state
    return {'tasks': found}


def start(cluster: str, tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Start tasks, or none if one is running; each has name, command, environment and cwd."""
    names = [task['name'] for task in tasks]
    running = find_processes(cluster, names)
    if any(running.values()):
        return {'error': f'running already: {", ".join(each for each in names if running[each])}'}
    try:
        folder(cluster).mkdir(parents=True, exist_ok=True, mode=0o700)
        for task in tasks:
            status = _status_file(cluster, task['name'])
            status.unlink(missing_ok=True)
            inherited = {name: value for name, value in os.environ.items()
                         if name not in NOT_INHERITED}
            for word in task['command']:
                if word.startswith(('run_dir:=', 'resume:=')):
                    run = Path(task['cwd'] or Path.home(), word.partition(':=')[2])
                    (folder(cluster) / _RUN).write_text(str(run))
            environment = {**inherited, **task['environment'], MARK: f'{cluster}/{task["name"]}'}
            with (folder(cluster) / f'{task["name"]}.log').open('wb') as log:
                subprocess.Popen(
                    ['bash', '-c', _WRAPPER, str(status), *task['command']],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    env=environment, cwd=task['cwd'] or Path.home(), start_new_session=True)
    except OSError as error:
        stop(cluster, names, 0.1)
        return {'error': f'cannot start: {error}'}
    return {}


def stop(cluster: str, names: Sequence[str], timeout: float) -> dict[str, Any]:
    """End tasks: SIGINT, after ``timeout`` s SIGTERM, 10 s later SIGKILL until none is left.

    Returns the names of tasks that were ``running``, that were ``killed``, and that are ``left``.
    """
    running = {name for name, pids in find_processes(cluster, names).items() if pids}
    for number, grace in ((signal.SIGINT, timeout), (signal.SIGTERM, _TERM_GRACE_S)):
        _send(cluster, names, number)
        left = _wait(cluster, names, grace)
        if not left:
            break
    killed, deadline = sorted(left), time.monotonic() + _KILL_GRACE_S
    while left and time.monotonic() < deadline:
        # Again: one may have started another meanwhile.
        _send(cluster, names, signal.SIGKILL)
        left = _wait(cluster, names, 0.5)
    return {'running': sorted(running), 'killed': killed, 'left': sorted(left)}


def _send(cluster: str, names: Sequence[str], number: int) -> None:
    for pids in find_processes(cluster, names).values():
        for pid in pids:
            try:
                os.kill(pid, number)
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue


def _wait(cluster: str, names: Sequence[str], timeout: float) -> dict[str, list[int]]:
    deadline = time.monotonic() + timeout
    while True:
        left = {name: pids for name, pids in find_processes(cluster, names).items() if pids}
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(0.1)


def _follow(cluster: str, names: Sequence[str], offsets: Mapping[str, int]) -> None:
    """Report states and new lines of the logs every second until the connection is closed."""
    places = dict(offsets)
    while True:
        report = states(cluster, names)
        for name in names:
            text, places[name] = _news(folder(cluster) / f'{name}.log', places.get(name, 0))
            report['tasks'][name].update(text=text, offset=places[name])
        _answer(report)
        # Nothing more is sent: it is readable once the other side has gone.
        if select.select([sys.stdin], [], [], _PERIOD_S)[0]:
            return


def _news(log: Path, place: int) -> tuple[str, int]:
    """Return the whole lines of a file from ``place`` on, and where they end."""
    try:
        with log.open('rb') as stream:
            size = stream.seek(0, os.SEEK_END)
            if size - place > REPORT_BYTES or size < place:
                place = max(size - REPORT_BYTES, 0)
            stream.seek(place)
            data = stream.read(REPORT_BYTES)
    except OSError:
        return '', place
    whole = data[:data.rfind(b'\n') + 1] if len(data) < REPORT_BYTES else data
    return whole.decode(errors='replace'), place + len(whole)


def _send_files(cluster: str, names: Sequence[str], run_dir: str) -> None:
    """Answer with name and size of each file, and its bytes after that; at the end without."""
    for name in names:
        _send_file(folder(cluster) / f'{name}.log', f'logs/{name}.log', LOG_BYTES)
    root = Path.home() / run_dir
    if run_dir and not root.is_dir() and (noted := folder(cluster) / _RUN).is_file():
        # A machine asks that did not start it, and does not know the name.
        root = Path(noted.read_text())
    for path in sorted(root.rglob('*')) if run_dir else ():
        name = str(path.relative_to(root))
        if path.is_file() and not path.is_symlink() and RUN_FILE.fullmatch(name):
            _send_file(path, name)
    _answer({})


def _send_file(path: Path, name: str, most: int = sys.maxsize) -> None:
    """Send the end of a file as it is now; another process may write to it."""
    try:
        with path.open('rb') as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(size - most, 0))
            left = min(size, most)
            _answer({'name': name, 'size': left})
            while left and (data := stream.read(min(left, 1 << 20))):
                sys.stdout.buffer.write(data)
                left -= len(data)
    except FileNotFoundError:
        return
    if left:
        sys.exit(f'host_agent: {path} has become shorter')


def _status_file(cluster: str, name: str) -> Path:
    return folder(cluster) / f'{name}.status'


def _answer(value: object) -> None:
    sys.stdout.buffer.write(PREFIX + json.dumps(value).encode() + b'\n')
    sys.stdout.buffer.flush()


if __name__ == '__main__':
    sys.exit(main())

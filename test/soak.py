"""A training and the arm's graph for an hour: no process may grow.

    make soak [MINUTES=60] [ARGS="--only training|arm --json FILE"]

The learner is slower than its actors, the arm follows a trajectory all the time, a page shows it,
and a subscriber of the large topics is stopped for half of every minute. Memory is that of heap
and stacks (RssAnon). The samples of the first sixth of the time do not count.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import page_client
import psutil
from conftest import Peer, Run
from processes import Launched
from trajectory_msgs.msg import JointTrajectory

from benchmarks import report
from benchmarks.graph import own_domain
from vdl_ros.msg import JointTrajectoryStatus
from vdl_ros.ros import qos
from vdl_ros.ros.messages.joint_messages import trajectory_message

PARTS = ('training', 'arm')
SAMPLE_S = 10.0
# The subscriber is stopped at one of this many samples, and continued half of them later.
CYCLE = 6
LIMIT_MB_PER_MIN = 1.0
TRAINING = (
    'train.launch.py', 'num_actors:=2', 'total_steps:=1000000000', 'stop_at_return:=1e9',
    # Unrolls of 1.2 MB, policies of 2 MB, five passes over each unroll.
    'env_id:=dummy/OBS7056-v0', 'num_envs:=8', 'unroll_length:=20', 'algorithm:=ppo',
    'synchronous:=false', 'ppo_epochs:=5', 'ppo_minibatches:=1', 'ppo_kl_target:=10.0')
LISTENER = """
import rclpy
from sensor_msgs.msg import Image
from vdl_ros import msg
from vdl_ros.ros.dds import transport
transport.configure()
rclpy.init()
node = rclpy.create_node('listener')
for kind, topic in ((msg.Trajectory, 'trajectories'), (msg.Policy, 'policy'),
                    (Image, 'camera/image_raw')):
    node.create_subscription(kind, topic, lambda message: None, 2)
print('listens', flush=True)
rclpy.spin(node)
"""


@dataclass
class Series:
    """What was seen of one process, or of shared memory, over time."""

    minutes: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, minute: float, **values: float) -> None:
        self.minutes.append(minute)
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    def slope(self, name: str) -> float:
        """Return the growth per minute, by least squares."""
        return statistics.linear_regression(self.minutes, self.values[name]).slope

    def grew(self, name: str) -> bool:
        """Return whether the last third is above the first, whatever comes and goes meanwhile."""
        values = self.values[name]
        third = max(1, len(values) // 3)
        return min(values[-third:]) > max(values[:third])


def judge(processes: dict[str, Series], memory: Series) -> list[str]:
    """Return what grew, a line each."""
    found = []
    for name, series in processes.items():
        if (slope := series.slope('rss_mb')) > LIMIT_MB_PER_MIN:
            found.append(f'{name}: memory grows by {slope:.2f} MB/min')
        found += [f'{name}: {what} grew' for what in ('fds', 'threads') if series.grew(what)]
    return found + [f'/dev/shm: {what} grew' for what in ('files', 'mb') if memory.grew(what)]


def summary(processes: dict[str, Series], memory: Series) -> dict[str, dict]:
    """Return first and last value of each quantity, and the slopes of memory."""
    found = {}
    for name, series in {**processes, '/dev/shm': memory}.items():
        ends = {what: [round(values[0], 2), round(values[-1], 2)]
                for what, values in series.values.items()}
        slope = series.slope('rss_mb') if 'rss_mb' in series.values else series.slope('mb')
        found[name] = {**ends, 'mb_per_min': round(slope, 3)}
    return found


def table(rows: dict[str, dict]) -> str:
    """Return the summary as a Markdown table."""
    columns = {'process': '{name}', 'MB': '{rss_mb[0]:g} to {rss_mb[1]:g}',
               'MB/min': '{mb_per_min:.3f}', 'file descriptors': '{fds[0]:g} to {fds[1]:g}',
               'threads': '{threads[0]:g} to {threads[1]:g}'}
    shared = rows['/dev/shm']
    return '\n'.join(report.columns(columns, (
        {'name': name, **row} for name, row in rows.items() if row is not shared)) + [
        '/dev/shm: files {files[0]:g} to {files[1]:g}, MB {mb[0]:g} to {mb[1]:g}'.format(
            **shared)])


class Soak:
    """The processes and what is seen of them."""

    def __init__(self, parts: list[str], folder: Path, peer: Peer, domain: int):
        self._parts, self._folder, self._peer = parts, folder, peer
        # Ports by number; see the DDS specification. Segments have names without a meaning.
        first = 7400 + 250 * domain
        self._shared = {f'fastrtps_port{port}' for port in range(first, first + 250)}
        self._started: list[Launched] = []
        self._names: dict[int, str] = {}
        self._threads: list[threading.Thread] = []
        self.run = Run(folder / 'run')
        self.status: list[JointTrajectoryStatus] = []
        self.processes: dict[str, Series] = {}
        self.memory = Series()
        self._commands = None

    def start(self) -> None:
        """Start everything and wait until it works."""
        self._listener = self._launch(sys.executable, '-c', LISTENER)
        self._listener.wait_for(lambda: 'listens' in self._listener.output, 'the listener')
        if 'training' in self._parts:
            train = self._launch('ros2', 'launch', 'vdl_ros', *TRAINING, f'run_dir:={self.run}')
            train.wait_for(lambda: self.run.steps and len(train.nodes('actor')) == 2, 'steps')
        if 'arm' in self._parts:
            arm = self._launch('ros2', 'launch', 'vdl_ros', 'arm.launch.py', 'view_port:=0')
            address = arm.wait_for(
                lambda: re.search(r'view: (http://\S+)', arm.output), 'the address of the view')
            self._show(address[1])
            topic = 'arm/trajectory_status'
            self.status = self._peer.listen(JointTrajectoryStatus, topic, qos.TOPICS[topic])
            topic = 'arm/joint_trajectory'
            self._commands = self._peer.talk(JointTrajectory, topic, qos.TOPICS[topic])
        self._names = {each.pid: name for name, each in self._named()}
        self.processes = {name: Series() for name in self._names.values()}

    def sample(self, minute: float, counts: bool) -> None:
        """Look at all processes; ``counts``: and note what is seen."""
        now = {each.pid: name for name, each in self._named()}
        changed = {*now} ^ {*self._names}
        if changed:
            gone = [name for pid, name in self._names.items() if pid in changed]
            print(*(each.output[-2000:] for each in self._started), sep='\n', file=sys.stderr)
            raise RuntimeError(f'ended: {", ".join(gone)}; new: {len(changed) - len(gone)}')
        for pid, name in self._names.items():
            process = psutil.Process(pid)
            self._shared |= shared_memory_of(pid)
            if counts:
                self.processes[name].add(
                    minute, rss_mb=anonymous_memory(pid) / 1e6, fds=process.num_fds(),
                    threads=process.num_threads())
        if counts:
            sizes = []
            for name in self._shared:
                with contextlib.suppress(FileNotFoundError):
                    sizes.append((Path('/dev/shm') / name).stat().st_size)
            self.memory.add(minute, files=len(sizes), mb=sum(sizes) / 1e6)
        if not all(each.is_alive() for each in self._threads):
            raise RuntimeError('the page was disconnected')

    def stop_listener(self, stopped: bool) -> None:
        self._listener.process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)

    def turn(self, count: int) -> None:
        """Let the arm move to one of two poses."""
        if self._commands is not None:
            angle = 0.5 if count % 2 else -0.5
            self._commands.publish(trajectory_message(
                ['base', 'shoulder'], [[angle, angle / 2]], [SAMPLE_S / 2]))

    def end(self) -> None:
        if self._started:
            self.stop_listener(False)
        for each in self._started:
            each.end()

    def _launch(self, *command: str) -> Launched:
        log = self._folder / f'output-{len(self._started)}.txt'
        self._started.append(Launched(list(command), log))
        return self._started[-1]

    def _show(self, address: str) -> None:
        """Receive what the view's page receives, in a thread."""
        page = page_client.PageClient(address)
        page.send(page_client.CAMERA)

        def receive():
            with page, contextlib.suppress(Exception):
                while True:
                    page.receive()

        self._threads.append(threading.Thread(target=receive, daemon=True))
        self._threads[-1].start()

    def _named(self) -> list[tuple[str, psutil.Process]]:
        """Return the processes and their names, equal ones with numbers."""
        named: dict[str, psutil.Process] = {}
        for launched in self._started:
            own = 'listener' if launched is self._listener else 'launch'
            processes = [psutil.Process(launched.process.pid), *launched.family()]
            for each in processes:
                try:
                    words = ' '.join(each.cmdline())
                except psutil.NoSuchProcess:  # it has just ended
                    continue
                found = re.search(r'/lib/vdl_ros/(\w+)', words)
                name = found[1] if found else own
                same = sum(other.partition(' ')[0] == name for other in named)
                named[f'{name} {same + 1}' if same else name] = each
        return list(named.items())


def anonymous_memory(pid: int) -> int:
    """Return bytes of heap and stacks."""
    lines = Path(f'/proc/{pid}/status').read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith('RssAnon:'))


def shared_memory_of(pid: int) -> set[str]:
    """Return the names of the files in /dev/shm that a process has mapped."""
    return {line.rpartition('/dev/shm/')[2].removesuffix(' (deleted)')
            for line in Path(f'/proc/{pid}/maps').read_text().splitlines() if '/dev/shm/' in line}


def soak(parts: list[str], minutes: float, folder: Path, domain: int) -> tuple[dict, list[str]]:
    """Let the parts run; return the summary, also if they end early, and what failed."""
    peer = Peer()
    test = Soak(parts, folder, peer, domain)
    failures: list[str] = []
    try:
        test.start()
        steps = test.run.steps
        try:
            watch(test, peer, minutes)
        except (RuntimeError, OSError, psutil.Error) as error:
            failures.append(str(error))
        done = sum(each.state == 'done' for each in test.status)
        if 'training' in parts and test.run.steps <= steps:
            failures.append('training: no progress')
        if 'arm' in parts and not done:
            failures.append('arm: no trajectory ended as it should')
        found = {'parts': parts, 'minutes': minutes, 'samples': len(test.memory.minutes),
                 'agent_steps': test.run.steps - steps, 'trajectories': done, 'processes': {}}
        if found['samples'] > 1:
            found['processes'] = summary(test.processes, test.memory)
            failures += judge(test.processes, test.memory)
        return found, failures
    finally:
        test.end()
        peer.close()


def watch(test: Soak, peer: Peer, minutes: float) -> None:
    """Take samples, and stop and continue the subscriber, for so long."""
    begin, count = time.monotonic(), 0
    while (minute := (time.monotonic() - begin) / 60) < minutes:
        if count % CYCLE in (0, CYCLE // 2):
            test.stop_listener(count % CYCLE != 0)
        test.turn(count)
        test.sample(minute, minute >= minutes / 6)
        count += 1
        print(f'\r  {minute:.1f} of {minutes:g} min', end='', file=sys.stderr, flush=True)
        due = begin + count * SAMPLE_S
        peer.until(lambda due=due: time.monotonic() >= due, 'the next sample')
    print(file=sys.stderr)


def main() -> int:
    """Run the command; return 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--minutes', type=float, default=60.0)
    parser.add_argument('--only', choices=PARTS, help='one of the two; both by default')
    parser.add_argument('--json', type=Path, help='file for the summary')
    options = parser.parse_args()
    parts = [options.only] if options.only else [*PARTS]
    # Ended as by Ctrl-C: the processes that it started end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with own_domain(configure=True), tempfile.TemporaryDirectory(prefix='soak-') as folder:
        os.environ['ROS_HOME'] = folder
        found, failures = soak(
            parts, options.minutes, Path(folder), int(os.environ['ROS_DOMAIN_ID']))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**found, 'failures': failures}, indent=2) + '\n')
    if found['processes']:
        print(table(found['processes']))
    print('\n'.join(failures))
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())

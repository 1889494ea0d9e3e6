"""Stalled listeners stall nobody; who saves something at the end is waited for."""

import contextlib
import signal
import sys

import psutil
import pytest
from rosbags.highlevel import AnyReader

from vdl_ros.bags.reader import BagError, BagReader

pytestmark = pytest.mark.slow
ENDLESS = ('total_steps:=100000000', 'stop_at_return:=1e9')
# Another program in the graph, with short queues; it hears nothing if it is to be silent.
LISTENER = """
import signal
import sys
import rclpy
from vdl_ros import msg
from vdl_ros.ros.dds import transport
transport.configure()
rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
node = rclpy.create_node('listener')
for kind, topic in (msg.Trajectory, 'trajectories'), (msg.Policy, 'policy'):
    node.create_subscription(kind, topic, lambda message: print('heard', flush=True), 2)
print('listens', flush=True)
try:
    while sys.argv[1] == 'spins':
        rclpy.spin_once(node, timeout_sec=0.1)
    signal.pause()
except KeyboardInterrupt:
    rclpy.shutdown()
"""


def holds(bag, *topics):
    """Return whether an unfinished bag has messages of all topics."""
    missing = set(topics)
    with contextlib.suppress(BagError):  # its header is not on the disk yet
        return any(missing.discard(each.topic) or not missing for each in BagReader(bag))
    return False


# ROS adds shared memory of its own where discovery is LOCALHOST, also to udp.
@pytest.mark.parametrize(('transport', 'discovery', 'size'), [
    ('shm', 'LOCALHOST', 4096), ('udp', 'SUBNET', 1024)])
def test_stalled_listeners_stall_nobody(
        launch, run, tmp_path, monkeypatch, transport, discovery, size):
    monkeypatch.setenv('VDL_TRANSPORT', transport)
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', discovery)
    stopped, silent = (launch(sys.executable, '-c', LISTENER, how) for how in ('spins', 'stays'))
    bag = tmp_path / 'bag'
    # Unrolls of 0.3 MB and weights of 1 MB; a quarter of it over UDP.
    train = launch.file('train', f'run_dir:={run}', f'record:={bag}',
                        f'env_id:=dummy/OBS{size}-v0', 'num_envs:=4', 'unroll_length:=16',
                        *ENDLESS)
    train.wait_for(
        lambda: run.steps and 'heard' in stopped.output and 'listens' in silent.output
        and all(f'recording /{name}' in train.output for name in ('trajectories', 'policy')),
        'all at work')
    # A subscription is there a moment before it is found.
    train.wait_for(lambda: holds(bag, '/trajectories', '/policy'), 'both in the bag')
    stalled = [psutil.Process(stopped.process.pid), *train.nodes('recorder')]
    assert len(stalled) == 2
    for each in stalled:
        each.send_signal(signal.SIGSTOP)
    steps = run.steps
    # 312 unrolls of each actor: more than its queue holds, and its shared memory or socket.
    train.wait_for(lambda: run.steps > steps + 40_000, 'progress beside stalled listeners')
    assert all(each.status() == psutil.STATUS_STOPPED for each in stalled)
    assert silent.process.poll() is None
    for each in stalled:
        each.send_signal(signal.SIGCONT)
    train.stop()
    found = run.summary
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    assert found['actor_restarts'] == found['learner_restarts'] == 0
    with AnyReader([bag]) as reader:
        counts = {each.topic: each.msgcount for each in reader.connections}
    assert counts['/trajectories'] > 0 < counts['/policy'], 'the bag is whole all the same'


def test_who_saves_something_at_the_end_is_waited_for(launch, run, tmp_path):
    bag = tmp_path / 'bag'
    train = launch.file('train', f'run_dir:={run}', 'env_id:=CartPole-v1', f'record:={bag}',
                        'num_actors:=1', *ENDLESS)
    train.wait_for(lambda: run.steps > 5000 and holds(bag, '/trajectories'), 'all at work')
    (actor,), saving = train.nodes('actor'), train.nodes('learner') + train.nodes('recorder')
    assert len(saving) == 2
    for each in (actor, *saving):
        each.send_signal(signal.SIGSTOP)
    train.interrupt()
    # As long as launch waits for those that have nothing to save, before it kills them.
    train.wait_for(lambda: not psutil.pid_exists(actor.pid), 'the end of a stopped actor')
    for each in saving:
        each.send_signal(signal.SIGCONT)
    assert train.wait() == 0, train.output
    assert run.summary['ended_by'] == 'interrupted'
    with AnyReader([bag]) as reader:
        assert '/trajectories' in reader.topics

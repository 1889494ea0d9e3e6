"""Slow learners, stalled listeners, stopped actors: nothing is lost, nothing grows, none waits."""

import signal
import statistics
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rosbags.highlevel import AnyReader

from vdl_ros.msg import Observation, Trajectory
from vdl_ros.ros import qos

MAX_POLICY_LAG, BATCH_SIZE = 4, 2
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


def start_learner(launch, run, *settings):
    words = [word for each in (f'run_dir:={run}', f'max_policy_lag:={MAX_POLICY_LAG}',
                               f'batch_size:={BATCH_SIZE}', *settings) for word in ('-p', each)]
    return launch('ros2', 'run', 'vdl_ros', 'learner', '--ros-args', *words)


def start_actors(launch, count):
    """Start actors that never take a learner which is slow for one that is gone."""
    return [launch('ros2', 'run', 'vdl_ros', 'actor', '--ros-args', '-p', f'actor_id:=actor_{i}',
                   '-p', 'credit_timeout:=3600.0') for i in range(count)]


def node_of(launched):
    """Return the process of a node; `ros2 run` may become it or be its parent."""
    parent = psutil.Process(launched.process.pid)
    return (parent.children(recursive=True) or [parent])[-1]


def end(*launched):
    for each in launched:
        each.interrupt()
        assert each.wait() == 0, each.output


def lag_bound(actors):
    """
    Return the largest mean lag that credit allows.

    At every update at most max_policy_lag trajectories of each actor are begun and not learned
    from yet; these become one version older, and batch_size are learned from. So it is however
    slow or unequal the actors are, which is not so of the largest lag.
    """
    return actors * MAX_POLICY_LAG / BATCH_SIZE


def memory(process):
    """Return bytes of heap and stacks: without files, and without shared memory."""
    lines = Path(f'/proc/{process.pid}/status').read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith('RssAnon:'))


def growth(samples):
    """Return the median of the last quarter less the median of the second."""
    quarter = len(samples) // 4
    assert quarter >= 5, 'too few samples to see anything'
    return statistics.median(samples[-quarter:]) - statistics.median(samples[quarter:2 * quarter])


def test_a_slow_learner_holds_its_actors_back_and_nothing_grows(launch, run, peer):
    total_steps = 20_000
    reports = peer.listen(DiagnosticArray, '/diagnostics', qos.TOPICS['/diagnostics'])
    # Unrolls of 1.2 MB, and half a million weights to learn from them.
    actors = start_actors(launch, 3)
    # One that comes when a fast machine has learned all would wait for ever.
    peer.until(lambda: all('waiting for a policy' in each.output for each in actors),
               'all waiting')
    # Five times over each: so it is slower than three actors on any machine.
    learner = start_learner(
        launch, run, 'env_id:=dummy/OBS7056-v0', 'num_envs:=8', 'unroll_length:=20',
        f'total_steps:={total_steps}', 'algorithm:=ppo', 'synchronous:=false', 'ppo_epochs:=5',
        'ppo_minibatches:=1', 'ppo_kl_target:=10.0')
    peer.until(lambda: run.steps and all('acts in' in each.output for each in actors),
               'all at work')
    processes = [node_of(each) for each in (learner, *actors)]
    samples = [[] for _ in processes]

    def over():
        for each, process in zip(samples, processes, strict=True):
            each.append(memory(process))
        return run.steps >= total_steps - 1000

    peer.until(over, 'the end')
    assert learner.wait() == 0, learner.output
    end(*actors)
    found = run.summary
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    waiting = [int(value.value) for report in reports for status in report.status
               for value in status.values if value.key == 'waiting trajectories']
    assert 0 < max(waiting) <= 3 * MAX_POLICY_LAG
    assert lag_bound(3) / 2 < found['policy_lag']['mean'] <= lag_bound(3), 'and it was slow'
    # Between the two quarters half of all went by; a tenth of that would be a leak. What credit
    # lets an actor have under way is none: one that came late may get there only now.
    passed = found['wire_bytes']['in'] / 2
    held = MAX_POLICY_LAG * found['wire_bytes']['in'] / found['trajectories_received']
    # As much may wait in the learner of each of the three.
    assert growth(samples[0]) < passed / 10 + 3 * held
    for each in samples[1:]:
        assert growth(each) < passed / 3 / 10 + held


# ROS adds shared memory of its own where discovery is LOCALHOST, also to udp.
@pytest.mark.parametrize(('transport', 'discovery', 'size'), [
    ('shm', 'LOCALHOST', 4096), ('udp', 'SUBNET', 1024)])
def test_stalled_listeners_stall_nobody(
        launch, run, holds, tmp_path, monkeypatch, transport, discovery, size):
    monkeypatch.setenv('VDL_TRANSPORT', transport)
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', discovery)
    stopped, silent = (launch(sys.executable, '-c', LISTENER, how) for how in ('spins', 'stays'))
    bag = tmp_path / 'bag'
    # Unrolls of 0.3 MB and weights of 1 MB; a quarter of it over UDP.
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   f'record:={bag}', f'env_id:=dummy/OBS{size}-v0', 'num_envs:=4',
                   'unroll_length:=16', *ENDLESS)
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
    end(train)
    assert train.family() == []
    found = run.summary
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    assert found['actor_restarts'] == found['learner_restarts'] == 0
    with AnyReader([bag]) as reader:
        counts = {each.topic: each.msgcount for each in reader.connections}
    assert counts['/trajectories'] > 0 < counts['/policy'], 'the bag is whole all the same'


def test_who_saves_something_at_the_end_is_waited_for(launch, run, holds, tmp_path):
    bag = tmp_path / 'bag'
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   'env_id:=CartPole-v1', f'record:={bag}', 'num_actors:=1', *ENDLESS)
    train.wait_for(lambda: run.steps > 5000 and holds(bag, '/trajectories'),
                   'all at work')
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


@pytest.mark.parametrize('inference', ['actor', 'learner'])
def test_a_stopped_actor_stops_nobody_and_goes_on(launch, run, peer, inference):
    heard = peer.listen(*{'actor': (Trajectory, 'trajectories', qos.STREAM),
                          'learner': (Observation, 'observations', qos.STREAM)}[inference])
    learner = start_learner(launch, run, f'inference:={inference}', *ENDLESS)
    actors = start_actors(launch, 3)

    def all_go_on(beyond, names):
        count = Counter(each.actor_id for each in heard)
        return all(count[f'actor_{i}'] > beyond for i in names)

    peer.until(lambda: run.steps and all_go_on(5, range(3)), 'all at work')
    stopped = node_of(actors[0])
    stopped.send_signal(signal.SIGSTOP)
    steps = run.steps
    heard.clear()
    # More than their credit, in less time than DDS needs to forget a participant.
    peer.until(lambda: run.steps > steps + 3_000 and all_go_on(10, (1, 2)),
               'progress without the one')
    assert stopped.status() == psutil.STATUS_STOPPED
    stopped.send_signal(signal.SIGCONT)
    heard.clear()
    peer.until(lambda: all_go_on(50, range(3)), 'progress of all three')
    end(learner, *actors)
    found = run.summary
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    assert found['actor_restarts'] == 0
    # Its unrolls are old then, and old ones are learned from, not counted lost.
    assert 0 < found['policy_lag']['mean'] <= lag_bound(3)

"""Nodes that die, hosts that lie: the training goes on, and what happened is counted."""

import array
import signal
from pathlib import Path

import psutil
from ament_index_python.packages import get_package_prefix
from builtin_interfaces.msg import Time
from std_msgs.msg import Header

from vdl_ros.msg import Observation, Tensor, Trajectory
from vdl_ros.ros import qos

# An environment that sleeps leaves the cores to the processes that start again.
LONG = ('env_id:=dummy/OBS8-FPS100-v0', 'num_envs:=16', 'unroll_length:=20',
        'total_steps:=100000000', 'stop_at_return:=1e9', 'checkpoint_period:=1.0')

# Others: test/ros/messages/test_tensors.py.
WRONG = [[], [Tensor(name='rewards', dtype='float32', shape=[2**32 - 1] * 4,
                     data=array.array('B', bytes(8)))]]


def send_rubbish(peer, train, policies, kind, topic):
    """Send wrong messages until the learner has said so, then all of them once more."""
    learner_id, name = policies[-1].learner_id, kind.__name__.lower()
    publisher = peer.talk(kind, topic, qos.STREAM)

    def send():
        for tensors in WRONG:
            publisher.publish(kind(
                header=Header(stamp=Time(sec=-2**31)), actor_id='stranger',
                learner_id=learner_id, tensors=tensors))

    # Not heard before the learner has discovered this publisher.
    peer.until(lambda: f"{name} of 'stranger' refused" in train.output, 'a warning',
               every=1.0, say=send)
    send()


def test_a_training_survives_its_nodes_and_a_stranger(launch, run, peer):
    policies = peer.listen('policy')
    train = launch.file('train', f'run_dir:={run}', *LONG)

    known = {}

    def used():
        """Return how much was learned from each start of an actor; a policy has what changed."""
        for policy in policies:
            known.update({each.start_id: each.used for each in policy.credits})
        del policies[:-1]
        return dict(known)

    def go_on(steps):
        beyond = run.steps + steps
        peer.until(lambda: run.steps > beyond, 'progress')

    peer.until(lambda: len(used()) == 2 and min(used().values()) > 2, 'progress of both actors')
    actors = train.nodes('actor')
    assert len(actors) == 2
    actors[0].send_signal(signal.SIGSTOP)
    go_on(3_000)
    assert actors[0].status() == psutil.STATUS_STOPPED
    actors[0].send_signal(signal.SIGCONT)
    before = used()
    peer.until(lambda: all(used()[each] > count + 2 for each, count in before.items()),
               'progress of both actors')

    actors[0].send_signal(signal.SIGKILL)
    peer.until(lambda: any(count > 2 for each, count in used().items() if each not in before),
               'progress with a new actor')

    learner, = train.nodes('learner')
    peer.until(run.checkpoint.exists, 'a first checkpoint')
    written, learner_id = run.checkpoint.stat().st_mtime_ns, policies[-1].learner_id
    peer.until(lambda: run.checkpoint.stat().st_mtime_ns != written, 'a checkpoint')
    learner.send_signal(signal.SIGKILL)
    peer.until(lambda: policies[-1].learner_id != learner_id, 'another learner')
    steps = run.steps
    go_on(5_000)

    send_rubbish(peer, train, policies, Trajectory, 'trajectories')
    go_on(5_000)
    train.stop()
    assert 'Traceback' not in train.output
    first = run.summary
    assert first['ended_by'] == 'interrupted'
    assert (first['actor_restarts'], first['learner_restarts']) == (1, 1)
    assert first['trajectories_lost'] == 0
    assert first['trajectories_rejected'] >= len(WRONG)
    assert first['agent_steps'] > steps


def test_central_inference_survives_a_stranger_and_nothing_outlives_a_killed_launch(
        launch, run, peer):
    policies = peer.listen('policy')
    train = launch.file('train', f'run_dir:={run}', *LONG, 'inference:=learner')
    peer.until(lambda: run.steps > 2_000 and policies, 'progress')
    send_rubbish(peer, train, policies, Observation, 'observations')
    steps = run.steps
    train.wait_for(lambda: run.steps > steps + 5_000, 'progress')
    assert len(train.family()) == 3
    train.process.kill()
    train.process.wait()
    train.wait_for(lambda: not train.family(), 'the end of every node')
    found = run.summary
    assert found['ended_by'] == 'interrupted', 'the learner still wrote its checkpoint'
    assert found['trajectories_rejected'] >= len(WRONG)
    assert found['trajectories_lost'] == 0
    assert found['message_age_ms']['p50'] > 0


def test_ctrl_c_while_a_node_starts_needs_no_traceback(launch):
    # Not forked: its imports are what is interrupted.
    node = launch(str(Path(get_package_prefix('vdl_ros'), 'lib', 'vdl_ros', 'evaluator')))
    process = psutil.Process(node.process.pid)
    node.wait_for(lambda: any('libtorch' in region.path for region in process.memory_maps()),
                  'the imports')
    node.interrupt()
    assert node.wait() in (0, 130)
    assert 'Traceback' not in node.output

"""Nodes that die, hosts that lie: the training goes on, and what happened is counted."""

import array
import json
import signal

import psutil
import rclpy
from builtin_interfaces.msg import Time
from std_msgs.msg import Header

from vdl_ros.common.settings import as_dict
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy, Tensor, Trajectory
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import qos

LONG = ('env_id:=CartPole-v1', 'total_steps:=100000000', 'stop_at_return:=1e9',
        'checkpoint_period:=1.0')


def start(launch, run, *arguments):
    train = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', f'run_dir:={run}',
                   *(arguments or LONG))
    train.wait_for(lambda: run.steps > 10_000, 'progress')
    return train


def finish(train, run):
    train.interrupt()
    assert train.wait() == 0, train.output
    assert train.family() == []
    return run.summary


def test_a_killed_actor_is_started_again_and_training_goes_on(launch, run, peer):
    policies = peer.listen(Policy, 'policy', qos.LATCHED)
    train = start(launch, run)
    peer.until(lambda: policies and len(policies[-1].credits) == 2, 'credit for both actors')
    known = {each.start_id for each in policies[-1].credits}
    actors = train.nodes('actor')
    assert len(actors) == 2
    actors[0].send_signal(signal.SIGKILL)
    train.wait_for(lambda: len(train.nodes('actor')) == 2
                   and actors[0].pid not in [each.pid for each in train.nodes('actor')],
                   'another actor')
    peer.until(lambda: any(each.used > 2 for each in policies[-1].credits
                           if each.start_id not in known), 'progress with the new actor')
    found = finish(train, run)
    assert found['actor_restarts'] == 1
    assert found['learner_restarts'] == 0
    assert found['trajectories_lost'] == 0


def test_a_killed_learner_goes_on_from_its_checkpoint(launch, run):
    train = start(launch, run)
    learner, = train.nodes('learner')
    written = run.checkpoint.stat().st_mtime_ns
    train.wait_for(lambda: run.checkpoint.stat().st_mtime_ns != written, 'a checkpoint')
    learner.send_signal(signal.SIGKILL)
    train.wait_for(lambda: [each for each in train.nodes('learner') if each.pid != learner.pid],
                   'another learner')
    steps = run.steps
    train.wait_for(lambda: run.steps > steps + 20_000, 'progress with the new learner')
    found = finish(train, run)
    assert found['learner_restarts'] == 1
    assert found['actor_restarts'] == 0
    assert found['trajectories_lost'] == 0
    assert found['agent_steps'] > steps


def test_nothing_outlives_a_launch_that_is_killed(launch, run):
    train = start(launch, run)
    family = train.family()
    assert len(family) >= 3
    train.process.kill()
    train.process.wait()
    train.wait_for(lambda: not train.family(), 'the end of every node')
    assert run.summary['ended_by'] == 'interrupted', 'the learner still wrote its checkpoint'


def test_an_actor_refuses_a_strangers_policy_and_waits_for_another(launch, run, stranger):
    publisher = stranger.create_publisher(Policy, 'policy', qos.LATCHED)
    actor = launch('ros2', 'run', 'vdl_ros', 'actor')
    good = json.dumps(as_dict(EnvConfig(), TrainConfig()))
    for config, reason in (
            ('no settings', 'policy refused'),
            ('{"env_id": "os.path:join"}', "'os.path:join'"),
            ('{"num_envs": -1}', 'num_envs: -1 is not allowed'),
            (good, 'weights: names')):
        publisher.publish(Policy(config=config, learner_id='stranger'))
        actor.wait_for(lambda reason=reason: reason in actor.output, reason)
    learner = launch('ros2', 'run', 'vdl_ros', 'learner', '--ros-args', '-p', f'run_dir:={run}',
                     '-p', 'total_steps:=20000')
    assert learner.wait() == 0, learner.output + actor.output
    actor.interrupt()
    assert actor.wait() == 0
    assert 'Traceback' not in actor.output


def test_a_strangers_trajectories_are_refused_and_the_learner_goes_on(launch, run, stranger):
    publisher = stranger.create_publisher(Trajectory, 'trajectories', qos.STREAM)
    heard = []
    stranger.create_subscription(Policy, 'policy', heard.append, qos.LATCHED)
    train = start(launch, run)
    executor = rclpy.executors.SingleThreadedExecutor(context=stranger.context)
    executor.add_node(stranger)

    def listen():
        executor.spin_once(timeout_sec=0.1)
        return heard and publisher.get_subscription_count()

    train.wait_for(listen, 'the policy')
    bytes_of = lambda count: array.array('B', bytes(count))  # noqa: E731
    wrong = {
        'no tensors': [],
        'unknown dtype': [Tensor(name='rewards', dtype='object', shape=[1], data=bytes_of(8))],
        'too few bytes': [Tensor(name='rewards', dtype='float32', shape=[99], data=bytes_of(8))],
        'overflowing shape': [Tensor(name='rewards', dtype='float32', shape=[2**32 - 1] * 4,
                                     data=bytes_of(8))],
        'wrong shape': [Tensor(name='rewards', dtype='float32', shape=[2], data=bytes_of(8))],
    }
    for tensors in wrong.values():
        publisher.publish(Trajectory(
            header=Header(stamp=Time(sec=-2**31)), actor_id='stranger',
            learner_id=heard[-1].learner_id, tensors=tensors))
    train.wait_for(lambda: "trajectory of 'stranger' refused" in train.output, 'a warning')
    steps = run.steps
    train.wait_for(lambda: run.steps > steps + 20_000, 'progress')
    found = finish(train, run)
    assert found['trajectories_rejected'] == len(wrong)
    assert found['trajectories_lost'] == 0
    executor.remove_node(stranger)


def test_ctrl_c_while_a_node_starts_needs_no_traceback(launch):
    node = launch('ros2', 'run', 'vdl_ros', 'evaluator')

    process = psutil.Process(node.process.pid)  # `ros2 run` becomes the node
    node.wait_for(lambda: any('libtorch' in region.path for region in process.memory_maps()),
                  'the imports')
    node.interrupt()
    assert node.wait() in (0, 130)
    assert 'Traceback' not in node.output

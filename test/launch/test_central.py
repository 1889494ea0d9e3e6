"""inference:=learner: the actors have no policy, and everything else is as before."""

import array
import signal

from rclpy.executors import SingleThreadedExecutor

from vdl_ros.msg import Observation, Policy, Tensor
from vdl_ros.ros import qos

LONG = ('total_steps:=100000000', 'stop_at_return:=1e9', 'checkpoint_period:=1.0')


def start(launch, run, *arguments):
    return launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', 'inference:=learner',
                  f'run_dir:={run}', *arguments)


def finish(train, run):
    train.interrupt()
    assert train.wait() == 0, train.output
    assert train.family() == []
    return run.summary


def test_cartpole_is_learned(launch, run):
    train = start(launch, run, 'env_id:=CartPole-v1', 'stop_at_return:=110.0')
    assert train.wait() == 0, train.output
    found = run.summary
    assert found['mean_return_100'] >= 110
    assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
    assert found['trajectories_received'] * 320 >= found['agent_steps']
    assert found['message_age_ms']['p50'] > 0
    for topic in ('observations', 'actions'):
        assert max(run.scalars(f'topics/{topic}/rate_hz')) > 1
        assert 0 <= max(run.scalars(f'topics/{topic}/age_max_ms')) < 10_000
    assert train.family() == []


def test_killed_nodes_come_back_and_training_goes_on(launch, run):
    train = start(launch, run, *LONG, 'env_id:=CartPole-v1')
    train.wait_for(lambda: run.steps > 2_000 and len(run.actors['starts']) == 2,
                   'progress of both actors')
    victim = train.nodes('actor')[0]
    victim.send_signal(signal.SIGKILL)
    train.wait_for(lambda: run.actors['restarts'], 'another actor')
    steps = run.steps
    train.wait_for(lambda: run.steps > steps + 5_000, 'progress with the new actor')
    learner, = train.nodes('learner')
    written = run.checkpoint.stat().st_mtime_ns
    train.wait_for(lambda: run.checkpoint.stat().st_mtime_ns != written, 'a checkpoint')
    learner.send_signal(signal.SIGKILL)
    train.wait_for(lambda: [each for each in train.nodes('learner') if each.pid != learner.pid],
                   'another learner')
    steps = run.steps
    train.wait_for(lambda: run.steps > steps + 5_000, 'progress with the new learner')
    found = finish(train, run)
    assert (found['actor_restarts'], found['learner_restarts']) == (1, 1)
    assert found['trajectories_lost'] == 0


def test_a_strangers_observations_are_refused_and_the_learner_goes_on(launch, run, stranger):
    publisher = stranger.create_publisher(Observation, 'observations', qos.STREAM)
    heard = []
    stranger.create_subscription(Policy, 'policy', heard.append, qos.LATCHED)
    executor = SingleThreadedExecutor(context=stranger.context)
    executor.add_node(stranger)
    train = start(launch, run, *LONG, 'env_id:=vdl/PixelCounter-v0')

    def listen():
        executor.spin_once(timeout_sec=0.1)
        return heard and publisher.get_subscription_count()

    train.wait_for(listen, 'the policy')
    train.wait_for(lambda: run.steps > 2_000, 'progress')
    wrong = [[], [Tensor(name='rewards', dtype='float32', shape=[2**31] * 3,
                         data=array.array('B', bytes(8)))]]
    for tensors in wrong:
        publisher.publish(Observation(
            actor_id='stranger', learner_id=heard[-1].learner_id, tensors=tensors))
    train.wait_for(lambda: "observation of 'stranger' refused" in train.output, 'a warning')
    steps = run.steps
    train.wait_for(lambda: run.steps > steps + 5_000, 'progress')
    found = finish(train, run)
    assert found['trajectories_rejected'] == len(wrong)
    assert found['trajectories_lost'] == 0
    executor.remove_node(stranger)

"""Training on the topics of the arm: the twin, a learner and an actor, and what stops them."""

import signal

import pytest

from vdl_ros.common.files import find_resource
from vdl_ros.ros.arm.arm_topics import moves, release_request, stop_request

pytestmark = pytest.mark.slow
STATE = 'arm/emergency_stop_state'


def test_the_shipped_policy_goes_on_learning_on_the_topics_of_the_twin(launch, peer, run):
    launch.node('sim_arm', 'publish_clock:=true', 'real_time_factor:=4.0')
    sent, states = map(peer.listen, ('arm/motors_sent', STATE))
    stop, release = map(peer.talk, ('arm/emergency_stop', 'arm/emergency_stop_release'))
    training = launch.file('train', 'env_id:=robot/owi535_sim',
                           f'init:={find_resource("models/reach.pt")}', 'unroll_length:=32',
                           'batch_size:=2', f'run_dir:={run}')

    def says(text):
        """Return a condition: the training prints it from now on."""
        before = training.output.count(text)
        return lambda: training.output.count(text) > before

    # One actor, without a word about it.
    training.wait_for(lambda: run.steps > 100, 'updates')
    assert len(training.nodes('actor')) == 1
    peer.until(lambda: sent and moves(sent[-1]), 'motion')
    # The emergency stop, and its release: another episode, and learning goes on.
    is_engaged = says(f'waits: {STATE}: ')
    stop.publish(stop_request('/test', 'test'))
    peer.until(is_engaged, 'the emergency stop')
    peer.until(lambda: sent and not moves(sent[-1]), 'motors off')
    peer.until(lambda: states and states[-1].engaged, 'its state')
    goes_on = says('goes on')
    release.publish(release_request('/test', 'test', states[-1]))
    peer.until(goes_on, 'the release')
    peer.until(lambda: moves(sent[-1]), 'motion')
    # A killed actor leaves no motor on, and the next one takes over.
    acts = says(' acts in ')
    training.nodes('actor')[0].send_signal(signal.SIGKILL)
    peer.until(lambda: not moves(sent[-1]), 'motors off')
    peer.until(acts, 'the next actor')
    peer.until(lambda: moves(sent[-1]), 'motion')
    steps = run.steps
    training.wait_for(lambda: run.steps > steps, 'updates')
    # Untrained it hardly reaches any; on a busy machine many actions are late.
    training.wait_for(lambda: any(float(row['success_rate_100']) > 0.0 for row in run.progress),
                      'a target that is reached')
    training.stop()
    peer.until(lambda: not moves(sent[-1]), 'motors off')
    assert run.summary['trajectories_lost'] == 0

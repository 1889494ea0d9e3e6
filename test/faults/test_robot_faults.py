"""A robot that fails in the middle of an episode: it stands still, and learning goes on."""

import contextlib
import time

import pytest
import yaml
from geometry_msgs.msg import Twist
from robot_contract import GOOD
from sensor_msgs.msg import JointState

#: Of the topic, s; and from the fault to the neutral action, without stalls of the machine.
TIMEOUT_S, STOPS_WITHIN_S = 0.5, 1.0
#: How long the fault lasts, s: longer than anything that could wait for its end.
FAULT_S = 1.5
CONTRACT = GOOD | {
    'topics': {'wheel': {'topic': 'wheel', 'type': 'sensor_msgs/msg/JointState',
                         'timeout': TIMEOUT_S}},
    'features': [{'name': 'speed', 'from': 'wheel', 'field': 'velocity', 'key': 'wheel',
                  'unit': 'rad/s', 'low': -1, 'high': 1}],
    'episode_steps': 10_000}


def jump(seconds):
    def set_clock(message):
        message.header.stamp.sec += seconds
    return set_clock


TRIES = 10  # trials of each fault
#: What becomes of a measurement; None: nothing is sent.
FAULTS = {
    'silence': None,
    'clock jumps back': jump(-10),
    'clock jumps ahead': jump(10),
    'no values': lambda message: setattr(message, 'velocity', []),
    'too many values': lambda message: setattr(message, 'velocity', [0.0] * 1000),
    'another joint': lambda message: setattr(message, 'name', ['arm']),
    'not a number': lambda message: setattr(message, 'velocity', [float('nan')]),
}


class Wheel:
    """A robot whose speed is what it was commanded last, and its training; begun at need."""

    def __init__(self, peer, launch, run, folder):
        self._peer, self._launch, self._run, self._folder = peer, launch, run, folder
        self._change, self._training = lambda message: None, None
        self._commands, self._measuring = [(0.0, 0.0)], contextlib.ExitStack()

    def __enter__(self):
        self._publisher = self._peer.node.create_publisher(JointState, 'wheel', 5)
        self._peer.node.create_subscription(Twist, 'cmd_vel', self._on_command, 10)
        self._measuring.enter_context(self._peer.saying(self._measure, every=0.02))
        return self

    def __exit__(self, *_):
        self._measuring.close()

    def _on_command(self, message):
        self._commands.append((time.monotonic(), message.linear.x))

    def _measure(self):
        message = JointState(name=['wheel'], velocity=[self._commands[-1][1]])
        message.header.stamp = self._peer.node.get_clock().now().to_msg()
        if self._change is not None:
            self._change(message)
            self._publisher.publish(message)

    def _start(self):
        (self._folder / 'rewards.py').write_text(
            'def speed(before, after, factor):\n    return factor * after["speed"]\n')
        (self._folder / 'wheel.yaml').write_text(yaml.safe_dump(CONTRACT))
        self._training = self._launch(
            'ros2', 'launch', 'vdl_ros', 'train.launch.py', 'env_id:=robot/wheel',
            f'robots:={self._folder}', f'run_dir:={self._run}', 'unroll_length:=5',
            'status_period:=0.1', 'total_steps:=100000000')

    def fail(self, change):
        """Let measurements fail: return when, and when the robot was told to stand still, s."""
        if self._training is None:
            self._start()
        self._until_it_learns()
        self._change, began = change, time.monotonic()
        self._peer.until(lambda: time.monotonic() > began + FAULT_S, 'the end of the fault')
        self._change = lambda message: None
        during = [each for each in self._commands if each[0] > began]
        # A neutral action may also be that of a tick that the agent was late for.
        last = max((index for index, (_, value) in enumerate(during) if value), default=-1)
        assert last + 1 < len(during), 'no neutral action'
        self._until_it_learns()
        return began, during[last + 1][0]

    def _until_it_learns(self):
        steps = self._run.steps
        self._peer.until(lambda: self._run.steps > steps + 10, 'steps')
        self._peer.until(lambda: self._commands[-1][1] != 0.0, 'motion')

    def finish(self):
        self._training.interrupt()
        assert self._training.wait() == 0, self._training.output[-3000:]
        self._peer.until(lambda: self._commands[-1][1] == 0.0, 'the neutral action at the end')
        assert 'Traceback' not in self._training.output
        return self._run.summary


@pytest.mark.fault_row(
    'a robot in training is silent, its clock jumps, its messages have another shape',
    'neutral action within 1 s and until the end of the fault, then learning goes on',
    reduced=7, full=TRIES * len(FAULTS))
def test_a_robot_that_fails_in_an_episode_stands_still(trials, peer, launch, run, tmp_path, took):
    with Wheel(peer, launch, run, tmp_path) as wheel:
        def fail(index, rng):
            name = [*FAULTS][index // TRIES]
            stopped = took(*wheel.fail(FAULTS[name]))
            assert stopped < STOPS_WITHIN_S, f'{name}: {stopped:.2f} s'
            return {'stops after (s)': stopped}

        trials.run(fail)
        found = wheel.finish()
        assert found['trajectories_lost'] == found['trajectories_rejected'] == 0
        assert found['actor_restarts'] == found['learner_restarts'] == 0

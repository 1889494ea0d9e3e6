"""Learning on a CUDA device, checked against the CPU; run by hand.

    python3 test/rl/cuda_check.py [--device cuda]

No test of the suite needs a GPU, so this is what shows that learning on one is right. It needs
PyTorch, Gymnasium, psutil and PyYAML, no ROS. ``--device cpu`` tries the script itself. Exit
status 0: all is well; 1: something differs; 2: there is no such device.
"""

import argparse
import copy
import dataclasses
import itertools
import sys
import tempfile
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'src'))

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.device import CPU, choose_device
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.checkpoint import load_checkpoint, save_checkpoint
from vdl_ros.rl.settings import ALGORITHM_SETTINGS, TrainConfig, make_algorithm_config

NUMBERS = gymnasium.spaces.Box(-10, 10, (3,), np.float32)
IMAGES = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
ACTIONS = gymnasium.spaces.Discrete(6)
# An optimiser whose steps are in proportion to gradients: Adam makes much of the smallest
# difference. Networks in float32 on both sides.
CONFIG = TrainConfig(
    unroll_length=20, hidden_size=32, optimizer='rmsprop', rmsprop_epsilon=1.0,
    learning_rate=0.01, normalize_advantages=True, precision='float32')
SMALL = {'replay_start': 1, 'replay_batch': 32, 'replay_size': 2000, 'replay_ratio': 0.3,
         'reinforce_episodes': 1, 'ppo_epochs': 2, 'ppo_minibatches': 2, 'prioritized': True}
# Largest difference of weights, as a share of how far learning has moved them.
TOLERANCE = 1e-3


def draw(learner, seed, count, envs):
    """Return ``count`` random unrolls of ``envs`` environments, with ends and resets."""
    schema, steps = learner.schema, learner.config.unroll_length
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        arrays = schema.empty(envs)
        done = rng.random((steps, envs)) < 0.1
        done[1:] &= ~done[:-1]
        # The step after an episode's last one only resets.
        arrays['is_reset'][:] = False
        arrays['is_reset'][2:] = done[:-1]
        arrays['terminated'][:] = done & (rng.random(done.shape) < 0.5)
        arrays['truncated'][:] = done & ~arrays['terminated']
        arrays['rewards'][:] = rng.normal(size=done.shape)
        arrays['actions'][:] = rng.integers(0, ACTIONS.n, done.shape)
        arrays['behaviour_log_probs'][:] = np.log(rng.uniform(0.05, 0.3, done.shape))
        if schema.state_size:
            arrays['state'][:] = rng.uniform(-1, 1, arrays['state'].shape)
        whole = arrays.pop('observations')
        if schema.stacked:
            whole[:] = rng.integers(0, 256, whole.shape, np.uint8)
            for t in range(1, steps + 1):
                goes_on = ~arrays['is_reset'][t]
                whole[t, goes_on, :-1] = whole[t - 1, goes_on, 1:]
        else:
            whole[:] = rng.normal(size=whole.shape)
        arrays |= schema.encode(whole, arrays['is_reset'])
        schema.check(arrays)
        found.append(Unroll(arrays, 'a', number, seed, 0))
    return found


def make(device, algorithm='impala', images=True, **changes):
    """Return a learner; of stacked pictures or of numbers."""
    config = dataclasses.replace(CONFIG, algorithm=algorithm, **changes)
    return Learner(config, IMAGES if images else NUMBERS, ACTIONS, 4 if images else 1,
                   algorithm_config=make_algorithm_config(config, SMALL), device=device)


def apart(one, other, first):
    """Return how far weights are apart, as a share of how far they have moved."""
    moved = max(np.abs(each - first[name]).max() for name, each in one.items())
    return max(np.abs(each - other[name]).max() for name, each in one.items()) / moved


class Checks:
    """What was compared, line by line."""

    def __init__(self, device):
        self.device, self.failed = device, 0

    def say(self, what, good, figures=''):
        self.failed += not good
        print(f'{"ok    " if good else "DIFFERS"} {what}  {figures}', flush=True)

    def run(self):
        for algorithm, images, lstm_size in itertools.product(
                ALGORITHM_SETTINGS, (False, True), (0, 16)):
            if algorithm != 'sac' or not lstm_size:
                self.updates(algorithm, images, lstm_size)
        for algorithm in ALGORITHM_SETTINGS:
            self.resumed(algorithm)
        for network in ('nature', 'resnet'):
            self.bfloat16(network)
        self.transfers()

    def updates(self, algorithm, images, lstm_size):
        """Two updates on each from the same unrolls."""
        learners = [make(each, algorithm, images, network='nature' if images else 'mlp',
                         lstm_size=lstm_size, normalize_observations=not images)
                    for each in (CPU, self.device)]
        first = copy.deepcopy(learners[0].weights())
        for update in range(2):
            unrolls = draw(learners[0], update, 2, 4)
            for learner in learners:
                torch.manual_seed(update)
                before = learner.algorithm.optimizer.steps
                with Waits(learner.device) as waits:
                    learner.update(unrolls)
        steps = learners[1].algorithm.optimizer.steps - before
        figure = apart(learners[0].weights(), learners[1].weights(), first)
        self.say(f'{algorithm}, {"images" if images else "numbers"}, lstm {lstm_size}',
                 figure < TOLERANCE, f'{figure:.1e} of what was learned; in the last update, of '
                 f'{steps} steps, the host waited {waits.number} times')

    def resumed(self, algorithm):
        """A checkpoint of one device goes on on the other."""
        for here, there in ((CPU, self.device), (self.device, CPU)):
            one, other = (make(each, algorithm, network='nature') for each in (here, there))
            one.update(draw(one, 0, 2, 4))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / 'checkpoint.pt'
                save_checkpoint(path, config={}, learner=one.state(), progress={})
                other.load_state(load_checkpoint(path)['learner'])
            first = copy.deepcopy(one.weights())
            same = all(np.array_equal(each, first[name]) for name, each in other.weights().items())
            for learner in (one, other):
                # The replay and unfinished episodes are not kept: both begin them anew.
                learner.algorithm = fresh(learner)
                torch.manual_seed(1)
                learner.update(draw(one, 1, 2, 4))
            figure = apart(one.weights(), other.weights(), first)
            self.say(f'{algorithm} goes on from {here.type} on {there.type}',
                     same and figure < TOLERANCE, f'{figure:.1e} of what was learned')

    def bfloat16(self, network):
        """Finite, near float32, and parameters stay float32."""
        losses, good = [], True
        for precision in ('float32', 'bfloat16'):
            learner = make(self.device, network=network, precision=precision)
            metrics = [learner.update(draw(learner, seed, 2, 4)) for seed in range(3)]
            good &= all(np.isfinite(value) for each in metrics for value in each.values())
            good &= {each.dtype for each in learner.policy.parameters()} == {torch.float32}
            losses.append(metrics[0]['losses/loss'])
        good &= abs(losses[1] / losses[0] - 1) < 0.02
        self.say(f'{network} in bfloat16', good, f'loss {losses[1]:.4f}, '
                 f'in float32 {losses[0]:.4f}')

    def transfers(self):
        """Batches are what was sent, while the one before is still being learned from."""
        learner, same = make(self.device, network='nature'), True
        for seed in range(20):
            unrolls = draw(learner, seed, 3, 1 + seed % 5)
            batch = learner.make_batch(unrolls)
            learner.learn(batch)
            following = learner.make_batch(draw(learner, 100 + seed, 2, 4))
            sent = make_batch(unrolls, learner.schema).tensors
            same &= all(torch.equal(each.cpu(), sent[name])
                        for name, each in batch.tensors.items())
            learner.learn(following)
        self.say('batches are what was sent', same)


class Waits:
    """Counts how often the host waits for the device: PyTorch warns of each time."""

    def __init__(self, device):
        self.device, self.number = device, 0

    def __enter__(self):
        self._caught = warnings.catch_warnings(record=True)
        self._warnings = self._caught.__enter__()
        warnings.simplefilter('always')
        if self.device != CPU:
            torch.cuda.set_sync_debug_mode('warn')
        return self

    def __exit__(self, *error):
        if self.device != CPU:
            torch.cuda.set_sync_debug_mode('default')
        self._caught.__exit__(*error)
        self.number = sum('called a synchronizing' in str(each.message) for each in self._warnings)


def fresh(learner):
    """Return the learner's algorithm, with its optimiser, and nothing else that it remembers."""
    algorithm = type(learner.algorithm)(
        learner.policy, learner.config, learner.algorithm_config, learner.schema, learner.group)
    algorithm.load_state(copy.deepcopy(learner.algorithm.state()))
    return algorithm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--device', choices=('cuda', 'cpu'), default='cuda')
    given = parser.parse_args()
    try:
        device = choose_device(given.device)
    except SettingError as error:
        print(f'cuda_check: {error}', file=sys.stderr)
        return 2
    torch.set_num_threads(16)
    # Ten bits of mantissa are not float32.
    torch.backends.cudnn.allow_tf32 = False
    checks = Checks(device)
    checks.run()
    return 1 if checks.failed else 0


if __name__ == '__main__':
    sys.exit(main())

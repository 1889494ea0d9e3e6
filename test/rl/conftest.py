"""What the tests of learning share: unrolls made by hand, and V-trace and GAE by the letter."""

import multiprocessing
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.rl.data.unroll import Unroll
from vdl_ros.rl.distributed.collectives import Group
from vdl_ros.rl.distributed.process_group import join

# More cost more time than they save on nets this small.
torch.set_num_threads(1)

# Steps of an episode of scripted unrolls, with the one that the environment ignores.
CYCLE = 6


@pytest.fixture(autouse=True)
def seeded():
    """Let every test draw the same weights and samples each time."""
    torch.manual_seed(0)


@pytest.fixture
def naive_vtrace():
    """
    Return a function: (v_s, advantages) as in arXiv:1802.01561, equation (1), sums as they stand.

    v_s = V(x_s) + sum_t gamma^(t-s) (prod_{i=s}^{t-1} c_i) delta_t V, with lambda in each c_i as
    in remark 2. A step that is not valid is none of the trajectory: what comes before it ends
    there, and it has no correction of its own.
    """
    def compute(log_rhos, discounts, rewards, values, valid, rho_bar, c_bar, lambda_=1.0):
        vs, ratios = np.array(values, np.float64), np.exp(log_rhos)
        rhos, cs = np.minimum(rho_bar, ratios), lambda_ * np.minimum(c_bar, ratios)
        deltas = rhos * (rewards + discounts * values[1:] - values[:-1])
        for s, b in np.ndindex(*rewards.shape):
            product = 1.0
            for t in range(s, len(rewards)):
                if not valid[t, b]:
                    break
                vs[s, b] += product * deltas[t, b]
                product *= discounts[t, b] * cs[t, b]
        advantages = rhos * (rewards + discounts * vs[1:] - values[:-1])
        return vs[:-1], np.where(valid, advantages, 0.0)
    return compute


@pytest.fixture
def naive_gae():
    """Return a function: advantages as in arXiv:1506.02438, equation (16), the sum as it stands.

    A_t = sum_l (gamma lambda)^l delta_{t+l}. A step that is not valid is none of the trajectory.
    """
    def compute(discounts, rewards, values, valid, lambda_):
        advantages = np.zeros(rewards.shape)
        deltas = rewards + discounts * values[1:] - values[:-1]
        for t, b in np.ndindex(*rewards.shape):
            factor = 1.0
            for s in range(t, len(rewards)):
                if not valid[s, b]:
                    break
                advantages[t, b] += factor * deltas[s, b]
                factor *= discounts[s, b] * lambda_
        return advantages
    return compute


class _Member(Group):
    """One of two learners, each in a thread: a sum waits for the other's part."""

    size = 2

    def __init__(self, rank, parts, barrier):
        self.rank, self._parts, self._barrier = rank, parts, barrier

    def all_reduce_sum(self, numbers):
        return sum(self._both(numbers.detach().clone()))

    def all_reduce_min(self, number):
        return min(self._both(number))

    def _both(self, mine):
        """Return what each of the two has here, in the order of ranks."""
        self._parts[self.rank] = mine
        self._barrier.wait(300.0)
        both = [self._parts[0], self._parts[1]]
        self._barrier.wait(300.0)
        return both

    def all_reduce_gradients(self, parameters):
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(self.all_reduce_sum(parameter.grad))


@pytest.fixture
def pair():
    """Return a function: what two learners of one group return, each called with its group."""
    def run(first, second):
        parts, barrier = {}, threading.Barrier(2)

        def member(rank, learn):
            try:
                return learn(_Member(rank, parts, barrier))
            except BaseException:
                barrier.abort()
                raise

        with ThreadPoolExecutor(2) as pool:
            return [each.result() for each in
                    [pool.submit(member, 0, first), pool.submit(member, 1, second)]]
    return run


@pytest.fixture
def spaces():
    """Observations of three numbers, four actions."""
    return gymnasium.spaces.Box(-10, 10, (3,), np.float32), gymnasium.spaces.Discrete(4)


@pytest.fixture
def random_unroll():
    """Return a function that draws a valid unroll for ``spaces``, with ends and resets."""
    def draw(seed, steps=8, batch=3, sequence=0, actor_id='a', start_id=1, version=0,
             state_size=0):
        rng = np.random.default_rng(seed)
        done = rng.random((steps, batch)) < 0.25
        is_reset = np.zeros((steps + 1, batch), np.bool_)
        for t in range(1, steps):
            # The step after the last one of an episode only resets, and ends nothing.
            is_reset[t + 1] = done[t - 1]
            done[t] &= ~is_reset[t + 1]
        by_task = rng.random((steps, batch)) < 0.5
        arrays = {
            'observations': rng.normal(size=(steps + 1, batch, 3)).astype(np.float32),
            'is_reset': is_reset,
            'actions': rng.integers(0, 4, (steps, batch)),
            'rewards': rng.normal(size=(steps, batch)).astype(np.float32),
            'terminated': done & by_task,
            'truncated': done & ~by_task,
            'behaviour_log_probs': np.log(
                rng.uniform(0.1, 0.6, (steps, batch))).astype(np.float32),
        }
        if state_size:
            arrays['state'] = rng.uniform(-1, 1, (batch, state_size)).astype(np.float32)
        return Unroll(arrays, actor_id, start_id, sequence, version)
    return draw


class Scripted:
    """
    An inbox whose episodes all have five steps of reward 1, the fifth terminated if it ``ends``.

    ``poison`` is the number of the unroll from which rewards are too large for a loss; ``on_get``
    is called with this inbox at each ``get``.
    """

    def __init__(self, flow_stats, steps=8, batch=2, poison=None, on_get=None, actor_id='a',
                 ends=True):
        self.ends = ends
        self.flow_stats, self.steps, self.batch = flow_stats, steps, batch
        self.actor_id = actor_id
        self.poison, self.on_get = poison, on_get
        self.sequence, self.clock = 0, 0

    def get(self, timeout):
        if self.on_get is not None:
            self.on_get(self)
        steps, batch = self.steps, self.batch
        time = (self.clock + np.arange(steps + 1)) % CYCLE
        self.clock += steps
        is_reset = np.repeat((time == 0)[:, None], batch, 1)
        rewards = np.repeat((time[1:] != 0)[:, None], batch, 1).astype(np.float32)
        if self.poison is not None and self.sequence >= self.poison:
            rewards[:] = 1e30
        ended = np.repeat((time[1:] == CYCLE - 1)[:, None], batch, 1) & self.ends
        arrays = {
            'observations': np.repeat(
                np.eye(CYCLE, 3, dtype=np.float32)[time][:, None], batch, 1),
            'is_reset': is_reset,
            'actions': np.zeros((steps, batch), np.int64),
            'rewards': rewards,
            'terminated': ended,
            'truncated': np.zeros((steps, batch), np.bool_),
            'behaviour_log_probs': np.full((steps, batch), np.log(0.25), np.float32),
        }
        self.flow_stats.arrive(self.actor_id, 1, self.sequence)
        self.sequence += 1
        return Unroll(arrays, self.actor_id, 1, self.sequence - 1, 0,
                      0.001 * self.sequence, num_bytes=100)


@pytest.fixture
def scripted():
    return Scripted


@pytest.fixture
def same():
    """Return a function: whether two nested structures of tensors are the same, bit by bit."""
    def compare(a, b):
        if isinstance(a, torch.Tensor):
            return torch.equal(a, b)
        if isinstance(a, np.ndarray):
            return a.dtype == b.dtype and np.array_equal(a, b)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(compare(a[key], b[key]) for key in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(compare, a, b))
        return a == b
    return compare


# Longest wait for another process, s.
PATIENCE = 60.0
# A fork of this process would inherit the locks that its other threads hold at that moment.
PROCESSES = multiprocessing.get_context('forkserver')
PROCESSES.set_forkserver_preload([
    'vdl_ros.rl.distributed.process_group', 'vdl_ros.rl.learning.learner'])


@pytest.fixture
def address():
    """Return an address at which nobody listens."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        return f'127.0.0.1:{free.getsockname()[1]}'


class ByValue:
    """A function of a test, which another process cannot import."""

    def __init__(self, function):
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        self._function = function

    def __reduce__(self):
        return cloudpickle.loads, (cloudpickle.dumps(self._function),)


@pytest.fixture
def start_process():
    """Return a function that starts one in a process and returns a call for its result."""
    processes = []

    def start(work, *arguments):
        ours, theirs = PROCESSES.Pipe()

        def run(connection, *arguments):
            torch.set_num_threads(1)
            torch.manual_seed(0)
            try:
                connection.send(work(*arguments))
            except BaseException as error:
                connection.send(error)
            os._exit(0)  # without the end of a group whose other members are gone

        def result():
            assert ours.poll(PATIENCE), 'a learner hangs'
            found = ours.recv()
            if isinstance(found, BaseException):
                raise found
            return found

        processes.append(PROCESSES.Process(
            target=ByValue(run), args=(theirs, *(
                ByValue(each) if callable(each) else each for each in arguments))))
        processes[-1].start()
        theirs.close()
        return result

    yield start
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode is not None, 'a learner does not end'


@pytest.fixture
def learners(start_process, address):
    """Return a function: what each of these returns, called with its group in its process."""
    def run(*works, timeout=PATIENCE):
        def member(rank, work):
            group = join(rank, len(works), address, timeout)
            try:
                return work(group)
            finally:
                group.close()

        return [result() for result in [
            start_process(member, rank, work) for rank, work in enumerate(works)]]
    return run

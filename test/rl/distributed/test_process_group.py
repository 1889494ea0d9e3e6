"""Several learners, each a real process, are one learner with all their unrolls; or none."""

import multiprocessing
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.distributed import process_group as module
from vdl_ros.rl.distributed.collectives import GroupError
from vdl_ros.rl.distributed.process_group import ProcessGroup, join
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.settings import TrainConfig

PROCESSES = multiprocessing.get_context('forkserver')
PATIENCE = 60.0


def make(spaces, group=None, **changes):
    config = TrainConfig(**{
        'unroll_length': 8, 'hidden_size': 8, 'total_steps': 10_000, 'learning_rate': 0.01,
        'normalize_advantages': True, 'optimizer': 'rmsprop', **changes})
    return Learner(config, *spaces, group=group)


def collect(group):
    """Return what each collective operation gives this learner."""
    parameters = [torch.zeros(2, 3), torch.zeros(()), torch.zeros(4)]
    for number, parameter in enumerate(parameters[:2]):
        parameter.grad = torch.full_like(parameter, number + 10.0 ** group.rank)
    group.all_reduce_gradients(parameters)
    mine = torch.tensor([1, 10 ** group.rank])
    return (group.rank, group.size, group.all_reduce_sum(mine).tolist(), mine.tolist(),
            group.all_reduce_min(5 - group.rank), group.all_gather('ä' * group.rank),
            group.broadcast(bytes([group.rank, 7])),
            [None if each.grad is None else each.grad.unique().tolist() for each in parameters])


def trained(spaces, random_unroll, rank):
    """Return a learner that begins otherwise than that of another rank, and has learned more."""
    learner = make(spaces, seed=rank)
    for update in range(3 + rank):
        learner.update([random_unroll(10 * rank + update)])
    return learner


def go_on_from_learner_0(group, spaces, random_unroll):
    """Return counts and weights of a learner after an update from the state of learner 0."""
    learner = make(spaces, group)
    learner.load_state(trained(spaces, random_unroll, group.rank).state())
    learner.broadcast_state()
    learner.update([random_unroll(100 + group.rank, batch=6 + group.rank)])
    # Another network is refused by the one that has it.
    other = make(spaces, group, hidden_size=8 + group.rank)
    if group.rank == 0:
        other.broadcast_state()
    else:
        with pytest.raises(ValueError, match='^checkpoint: not of this network: '):
            other.broadcast_state()
    return learner.version, learner.agent_steps, [
        each.copy() for each in learner.weights().values()]


@pytest.mark.process
def test_two_processes_are_one_learner_with_the_joined_batch(learners, spaces, random_unroll):
    """From the state of learner 0 on; and their other operations reach both."""
    def work(group):
        return collect(group), go_on_from_learner_0(group, spaces, random_unroll)

    one = trained(spaces, random_unroll, 0)
    before = next(iter(one.weights().values())).copy()
    one.update([random_unroll(100 + rank, batch=6 + rank) for rank in range(2)])
    for rank, (collected, (version, steps, weights)) in enumerate(learners(work, work)):
        assert collected == (rank, 2, [2, 11], [1, 10 ** rank], 4, ['', 'ä'], b'\0\7',
                             [[11.0], [13.0], None])
        assert (version, steps) == (4, one.agent_steps)
        for mine, expected in zip(weights, one.weights().values(), strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)
        assert not np.allclose(weights[0], before, atol=1e-3)


@pytest.mark.process
def test_death_is_an_error_of_the_other_and_a_restarted_one_waits_for_the_next_group(
        start_process, address):
    """Its place in the group that it died in stays taken."""
    met, early, over = PROCESSES.Event(), PROCESSES.Event(), PROCESSES.Event()

    def first():
        group = join(0, 2, address, PATIENCE)
        met.set()
        assert early.wait(PATIENCE)
        parameter = torch.zeros(3)
        parameter.grad = torch.ones(3)
        with pytest.raises(GroupError) as error:
            group.all_reduce_gradients([parameter])
        with pytest.raises(GroupError):
            group.all_reduce_sum(torch.ones(2))
        line = str(error.value)
        group.close()
        # Frames of the error hold the store as well, which listens at the address.
        del group, error
        again = join(0, 2, address, PATIENCE)
        return line, again.all_reduce_sum(torch.ones(1)).tolist()

    def dies():
        join(1, 2, address, PATIENCE)
        # One that dies while they connect is an error of that already.
        assert met.wait(PATIENCE)
        over.set()
        os._exit(9)

    def comes_back():
        assert over.wait(PATIENCE)
        with pytest.raises(GroupError, match='learner 0 did not (come|answer)'):
            join(1, 2, address, 1.0)
        early.set()
        return join(1, 2, address, PATIENCE).all_reduce_sum(torch.ones(1)).tolist()

    found, _, again = (start_process(each) for each in (first, dies, comes_back))
    line, total = found()
    assert total == again() == [2.0]
    assert line.startswith('learner 0 waited for the sum of gradients with learner 1: ')
    assert 'group_timeout' not in line, 'it was told, and did not wait'
    assert '\n' not in line


@pytest.mark.slow
@pytest.mark.process
def test_silent_learner_raises_group_error_after_the_timeout(start_process, address):
    ready = PROCESSES.Event()

    def first():
        group = join(0, 2, address, PATIENCE)
        gloo = dist.group.WORLD._get_backend(torch.device('cpu'))
        assert gloo.options._timeout.total_seconds() == group._timeout == PATIENCE
        # Shorter only now: they may take longer than that to meet.
        gloo._set_default_timeout(timedelta(seconds=1.0))
        group._timeout = 1.0
        with pytest.raises(GroupError) as error:
            group.all_reduce_sum(torch.ones(2))
        ready.set()
        group.close()
        return str(error.value)

    def second():
        group = join(1, 2, address, PATIENCE)
        assert ready.wait(PATIENCE)
        group.close()

    line, waited = start_process(first), start_process(second)
    assert line() == ('learner 0 waited for a sum with learner 1: nothing came within '
                      'group_timeout, 1 s')
    waited()


def test_missing_learners_are_named(address):
    # 0: as where the name of the first learner's host is long looked for.
    for timeout in (0.5, 0.0):
        for rank, missing in ((0, 'learners 1, 2'), (1, 'learner 0')):
            with pytest.raises(GroupError, match=(
                    rf'^learner {rank} waited at group_address {address}: {missing} did not '
                    rf'(come|answer) within group_timeout, {timeout:g} s$')):
                join(rank, 3, address, timeout)


def test_joining_a_stopped_learner_0_is_an_error_and_can_be_interrupted(address):
    """The kernel connects to a process that is stopped, but nobody answers."""
    stop = threading.Event()
    stop.set()
    assert join(0, 2, address, PATIENCE, stop=stop) is None
    host, port = address.split(':')
    with socket.create_server((host, int(port))):
        with pytest.raises(GroupError, match='learner 0 did not (answer|come) within group_t'):
            join(1, 2, address, 1.0)
        stop.clear()
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(join, 1, 2, address, PATIENCE, stop=stop)
            stop.set()
            assert joining.result() is None


def test_invalid_group_address_is_rejected():
    for address, message in (
            ('host:99999', r"group_address: 'host:99999' is not allowed: host:port"),
            ('192.0.2.1:29400', r"learner 0 cannot listen at '192.0.2.1:29400': ")):
        with pytest.raises(SettingError, match=message):
            join(0, 2, address, 1.0)


def test_another_num_learners_is_rejected(address):
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(join, 0, 2, address, PATIENCE, stop=stop)
        with pytest.raises(
                SettingError, match='num_learners: 3 is not allowed: learner 0 counts 2'):
            join(1, 3, address, PATIENCE)
        stop.set()
        assert first.result() is None


def test_nccl_is_for_learners_that_all_have_a_device_of_their_own(monkeypatch):
    """Counts, texts and the state that all begin with are in host memory, and Gloo's always."""
    for identities in (['a', 'b'], ['a', 'b', 'c'], ['a', 'a'], ['a', 'b', 'a'], ['', ''],
                       ['a', '']):
        asked, store, size = [], dist.HashStore(), len(identities)
        monkeypatch.setattr(
            module, 'nccl_identity', lambda device, identities=identities: identities[device])
        monkeypatch.setattr(dist, 'init_process_group',
                            lambda name, asked=asked, **more: asked.append(name))
        with ThreadPoolExecutor(size) as pool:
            groups = list(pool.map(lambda rank, store=store, size=size: ProcessGroup(
                store, rank, size, 10.0, rank), range(size)))
        nccl = identities in (['a', 'b'], ['a', 'b', 'c'])
        assert asked == ['cpu:gloo,cuda:nccl' if nccl else 'gloo'] * size, identities
        assert [each.uses_nccl for each in groups] == [nccl] * size


def test_a_learner_that_is_gone_before_it_names_its_device_is_an_error():
    class Empty(dist.HashStore):
        def get(self, name):
            raise dist.DistStoreError('wait timeout')

    with pytest.raises(GroupError, match=(
            '^learner 0 waited for the devices of all learners with learner 1: wait timeout$')):
        ProcessGroup(Empty(), 0, 2, 10.0)

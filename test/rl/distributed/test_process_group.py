"""Several learners, each a real process, are one learner with all their unrolls; or none."""

import multiprocessing
import os
import socket
import threading
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.algorithm_config import ALGORITHM_SETTINGS
from vdl_ros.rl.distributed.collectives import GroupError
from vdl_ros.rl.distributed.process_group import join
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.train_config import TrainConfig

pytestmark = pytest.mark.process

PROCESSES = multiprocessing.get_context('forkserver')
PATIENCE = 60.0


def test_all_reduce_all_gather_and_broadcast_reach_every_learner(learners):
    def work(group):
        parameters = [torch.zeros(2, 3), torch.zeros(()), torch.zeros(4)]
        for number, parameter in enumerate(parameters[:2]):
            parameter.grad = torch.full_like(parameter, number + 10.0 ** group.rank)
        group.all_reduce_gradients(parameters)
        mine = torch.tensor([1, 10 ** group.rank])
        told = group.all_gather('ä' * group.rank), group.broadcast(bytes([group.rank, 7]))
        return (group.rank, group.size, group.all_reduce_sum(mine).tolist(), mine.tolist(),
                group.all_reduce_min(5 - group.rank), *told, [
                    None if each.grad is None else each.grad.unique().tolist()
                    for each in parameters])

    for rank, found in enumerate(learners(work, work, work)):
        assert found == (rank, 3, [3, 111], [1, 10 ** rank], 3, ['', 'ä', 'ää'], b'\0\7',
                         [[111.0], [114.0], None])


CASES = {
    'impala': ('impala', {'normalize_advantages': True, 'optimizer': 'rmsprop'}, {}),
    'impala, adam': ('impala', {'normalize_observations': True, 'lstm_size': 4}, {}),
    'a3c': ('a3c', {'normalize_advantages': True, 'normalize_observations': True}, {}),
    'ppo': ('ppo', {'normalize_advantages': True, 'normalize_observations': True},
            {'ppo_epochs': 1, 'ppo_minibatches': 1, 'normalize_returns': True}),
    'reinforce': ('reinforce', {'normalize_advantages': True}, {'reinforce_episodes': 1}),
}


def make(spaces, case, group=None, **changes):
    name, general, special = case
    config = TrainConfig(**{'algorithm': name, 'unroll_length': 8, 'hidden_size': 8,
                            'total_steps': 10_000, 'learning_rate': 0.01,
                            **general, **changes})
    return Learner(config, *spaces, group=group,
                   algorithm_config=ALGORITHM_SETTINGS[name](**special))


def gradients_and_state(learner):
    """Return copies, in numpy: torch would share its memory with a process that ends."""
    gradients = [each.grad for each in learner.policy.parameters() if each.grad is not None]
    return [each.numpy().copy() for each in (*gradients, *learner.policy.state_dict().values())]


@pytest.fixture
def share(random_unroll):
    """Return a function: a learner's unrolls of an update; the second one has more of them."""
    def draw(rank, update, state_size=0):
        return [random_unroll(100 * update + 10 * rank + number, batch=6 + number,
                              start_id=10 * rank + number, sequence=update,
                              state_size=state_size) for number in range(1 + rank)]
    return draw


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_two_learners_are_one_with_the_joined_batch(learners, spaces, share, case):
    def work(group):
        learner, found = make(spaces, case, group), []
        for update in range(6):
            learner.update(share(group.rank, update, learner.policy.state_size))
            found.append(gradients_and_state(learner))
        return found, learner.agent_steps

    (first, steps), (second, same_steps) = learners(work, work)
    one = make(spaces, case)
    before = [each.clone() for each in one.policy.parameters()]
    for update in range(6):
        size = one.policy.state_size
        one.update(share(0, update, size) + share(1, update, size))
        joined = gradients_and_state(one)
        for found in (first[update], second[update]):
            for mine, expected in zip(found, joined, strict=True):
                np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)
    assert steps == same_steps == one.agent_steps
    assert not torch.allclose(before[0], next(one.policy.parameters()), atol=1e-3)


@pytest.mark.parametrize('case', [
    CASES['impala'], ('ppo', {}, {'ppo_epochs': 2, 'ppo_minibatches': 5}),
    ('ppo', {'lstm_size': 4}, {'ppo_epochs': 2, 'ppo_minibatches': 3}),
    ('dqn', {}, {'replay_start': 60, 'replay_batch': 16, 'replay_ratio': 1.0,
                 'prioritized': True}),
    ('sac', {}, {'replay_start': 60, 'replay_batch': 16, 'replay_ratio': 1.0})],
    ids=['impala', 'ppo', 'ppo, lstm', 'dqn', 'sac'])
def test_every_update_reaches_every_learner(learners, spaces, share, case):
    """Whatever each learns from, all have the same weights after each update, to the bit."""
    def work(group):
        learner, found = make(spaces, case, group), []
        for update in range(20):
            learner.update(share(group.rank, update, learner.policy.state_size))
            found.append(b''.join(each.tobytes() for each in learner.weights().values()))
        return found

    first, second = learners(work, work)
    assert first == second
    # The replay is filled first.
    assert len(set(first)) >= 17


def test_all_learners_load_the_state_of_learner_0(learners, spaces, share):
    def work(group):
        # The second one begins with other weights, and has made other steps.
        alone = make(spaces, CASES['impala'], seed=group.rank)
        for update in range(3 + 4 * group.rank):
            alone.update(share(group.rank, update))
        learner = make(spaces, CASES['impala'], group)
        learner.load_state(alone.state())
        learner.broadcast_state()
        counts = learner.version, learner.agent_steps
        for update in range(3):
            learner.update(share(group.rank, update))
        return counts, [each.tobytes() for each in learner.weights().values()]

    first, second = learners(work, work)
    assert first == second
    assert first[0][0] == 3


def test_a_learner_of_another_network_is_refused(learners, spaces):
    def work(group):
        learner = make(spaces, CASES['impala'], group, hidden_size=8 + group.rank)
        if group.rank == 0:
            return learner.broadcast_state()
        with pytest.raises(ValueError, match='^checkpoint: not of this network: '):
            learner.broadcast_state()
        return None

    assert learners(work, work) == [None, None]


def test_death_of_a_learner_raises_group_error_in_the_other(start_process, address):
    def first():
        group = join(0, 2, address, PATIENCE)
        for _ in range(3):
            group.all_reduce_sum(torch.ones(2))
        parameter = torch.zeros(3)
        parameter.grad = torch.ones(3)
        with pytest.raises(GroupError) as error:
            group.all_reduce_gradients([parameter])
        with pytest.raises(GroupError):
            group.all_reduce_sum(torch.ones(2))
        group.close()
        return str(error.value)

    def second():
        group = join(1, 2, address, PATIENCE)
        for _ in range(3):
            group.all_reduce_sum(torch.ones(2))
        os._exit(9)

    told, _ = start_process(first), start_process(second)
    line = told()
    assert line.startswith('learner 0 waited for the sum of gradients with learner 1: ')
    assert 'group_timeout' not in line, 'it was told, and did not wait'
    assert '\n' not in line


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
    with pytest.raises(GroupError, match=(
            rf'^learner 0 waited at group_address {address}: learners 1, 2 did not come within '
            r'group_timeout, 3 s$')):
        join(0, 3, address, 3.0)
    with pytest.raises(GroupError, match=r'^learner 1 .*: learner 0 did not come within'):
        join(1, 3, address, 3.0)


@pytest.mark.parametrize(('rank', 'others'), [(0, 'learners 1, 2'), (1, 'learner 0')])
def test_timeout_before_the_first_poll_names_only_the_others(address, rank, others):
    """As where the name of the first learner's host is long looked for."""
    with pytest.raises(
            GroupError, match=rf': {others} did not (come|answer) within group_timeout, 0 s$'):
        join(rank, 3, address, 0.0)


def test_joining_can_be_interrupted(address):
    stop = threading.Event()
    stop.set()
    assert join(0, 2, address, PATIENCE, stop=stop) is None
    assert join(1, 2, address, PATIENCE, stop=stop) is None


@pytest.fixture
def stopped_learner_0():
    """Return the address of a process that is stopped: the kernel connects, nobody answers."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        yield f'127.0.0.1:{listener.getsockname()[1]}'


def test_joining_a_stopped_learner_0_raises_group_error(stopped_learner_0):
    with pytest.raises(GroupError, match='learner 0 did not answer within group_timeout, 3 s'):
        join(1, 2, stopped_learner_0, 3.0)


def test_joining_a_stopped_learner_0_can_be_interrupted(stopped_learner_0):
    stop = threading.Event()
    threading.Timer(1.0, stop.set).start()
    assert join(1, 2, stopped_learner_0, PATIENCE, stop=stop) is None


def test_restarted_learner_waits_for_the_next_group(start_process, address):
    """Its place in the group that it died in stays taken."""
    met, early, over = PROCESSES.Event(), PROCESSES.Event(), PROCESSES.Event()

    def first():
        group = join(0, 2, address, PATIENCE)
        met.set()
        assert early.wait(PATIENCE)
        with pytest.raises(GroupError):
            group.all_reduce_sum(torch.ones(1))
        group.close()
        del group
        again = join(0, 2, address, PATIENCE)
        return again.all_reduce_sum(torch.ones(1)).tolist()

    def dies():
        join(1, 2, address, PATIENCE)
        # One that dies while they connect is an error of that already.
        assert met.wait(PATIENCE)
        over.set()
        os._exit(9)

    def comes_back():
        assert over.wait(PATIENCE)
        with pytest.raises(GroupError, match='learner 0 did not come'):
            join(1, 2, address, 3.0)
        early.set()
        return join(1, 2, address, PATIENCE).all_reduce_sum(torch.ones(1)).tolist()

    found, _, again = (start_process(each) for each in (first, dies, comes_back))
    assert found() == again() == [2.0]


@pytest.mark.parametrize(('rank', 'address', 'message'), [
    (0, 'nohost', r"group_address: 'nohost' is not allowed: host:port"),
    (1, 'host:99999', r"group_address: 'host:99999' is not allowed: host:port"),
    (0, '192.0.2.1:29400', r"learner 0 cannot listen at '192.0.2.1:29400': ")])
def test_invalid_group_address_is_rejected(rank, address, message):
    with pytest.raises(SettingError, match=message):
        join(rank, 2, address, 1.0)


def test_another_num_learners_is_rejected(start_process, address):
    def member(rank):
        group = join(rank, 2, address, PATIENCE)
        # Who is gone before the other is connected as well is an error of it.
        return group.all_reduce_sum(torch.ones(1)).tolist()

    first = start_process(member, 0)
    with pytest.raises(SettingError, match='num_learners: 3 is not allowed: learner 0 counts 2'):
        join(1, 3, address, PATIENCE)
    second = start_process(member, 1)
    assert first() == second() == [2.0]

"""Learners on devices: who sums over what, and that sums are where their parts are."""

from concurrent.futures import ThreadPoolExecutor

import fake_device
import numpy as np
import pytest
import torch
import torch.distributed as dist

from vdl_ros.rl.algorithm_config import make_algorithm_config
from vdl_ros.rl.distributed import process_group as module
from vdl_ros.rl.distributed.collectives import GroupError
from vdl_ros.rl.distributed.process_group import ProcessGroup, agree_on_nccl
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.train_config import TrainConfig

pytestmark = pytest.mark.process

DEVICE = fake_device.DEVICE


def together(work, *arguments):
    """Return what a call with each of these, in a thread of its own, returns."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(work, range(len(arguments)), arguments))


@pytest.mark.parametrize(('identities', 'expected'), [
    (['a', 'b'], True), (['a', 'b', 'c'], True), (['a', 'a'], False), (['a', 'b', 'a'], False),
    (['', ''], False), (['a', ''], False), (['', 'b'], False)])
def test_nccl_is_for_learners_that_all_have_a_device_of_their_own(identities, expected):
    store = dist.HashStore()
    assert together(lambda rank, identity: agree_on_nccl(
        store, rank, len(identities), identity), *identities) == [expected] * len(identities)


@pytest.mark.parametrize(('names', 'backend'), [
    (['a', 'b'], 'cpu:gloo,cuda:nccl'), (['a', 'a'], 'gloo'), (['a', ''], 'gloo')])
def test_a_group_connects_by_what_was_agreed_on(monkeypatch, names, backend):
    """Counts, texts and the state that all begin with are in host memory, and Gloo's always."""
    asked, store = [], dist.HashStore()
    monkeypatch.setattr(module, 'nccl_identity', lambda device: names[device.index])
    monkeypatch.setattr(dist, 'init_process_group', lambda name, **more: asked.append(name))
    groups = together(lambda rank, device: ProcessGroup(store, rank, 2, 10.0, device),
                      torch.device('cuda', 0), torch.device('cuda', 1))
    assert asked == [backend] * 2
    assert [each.uses_nccl for each in groups] == [backend != 'gloo'] * 2


def test_a_learner_that_is_gone_before_it_names_its_device_is_an_error(monkeypatch):
    class Empty(dist.HashStore):
        def get(self, name):
            raise dist.DistStoreError('wait timeout')

    with pytest.raises(GroupError, match=(
            '^learner 0 waited for the devices of all learners with learner 1: wait timeout$')):
        ProcessGroup(Empty(), 0, 2, 10.0)


@pytest.fixture
def on_devices(learners):
    """Return a function: what two learners return that have fake devices, in processes."""
    def run(work):
        def with_device(group):
            fake = fake_device.FakeDevice()
            with pytest.MonkeyPatch.context() as patch:
                fake.install(patch)
                with fake:
                    return work(group)
        return learners(with_device, with_device)
    return run


def test_sums_are_where_their_parts_are(on_devices):
    def work(group):
        mine = torch.tensor([1.0, 10.0 ** group.rank]).to(DEVICE)
        parameters = [torch.zeros(2, 3, device=DEVICE), torch.zeros(4, device=DEVICE)]
        parameters[0].grad = torch.full_like(parameters[0], 1.0 + group.rank)
        group.all_reduce_gradients(parameters)
        total = group.all_reduce_sum(mine)
        here = group.all_reduce_sum(torch.tensor([group.rank]))
        devices = [str(each.device) for each in (total, parameters[0].grad, here)]
        return (devices, total.tolist(), mine.tolist(), parameters[0].grad.cpu().tolist(),
                here.tolist(), group.all_reduce_min(5 - group.rank),
                group.all_gather(str(group.rank)))

    for rank, found in enumerate(on_devices(work)):
        assert found == (['lazy:0', 'lazy:0', 'cpu'], [2.0, 11.0], [1.0, 10.0 ** rank],
                         [[3.0] * 3] * 2, [1], 4, ['0', '1'])


@pytest.mark.parametrize('algorithm', ['impala', 'ppo', 'dqn'])
def test_two_learners_on_devices_are_two_on_the_cpu(
        on_devices, learners, spaces, random_unroll, algorithm):
    config = TrainConfig(
        algorithm=algorithm, unroll_length=8, hidden_size=8, normalize_observations=True,
        normalize_advantages=True, total_steps=10_000)

    def learned(group, device):
        options = {'replay_start': 1, 'replay_batch': 16, 'replay_ratio': 0.5, 'replay_size': 400,
               'ppo_epochs': 1}
        learner = Learner(
            config, *spaces, algorithm_config=make_algorithm_config(config, options),
            group=group, device=device)
        learner.broadcast_state()
        for update in range(2):
            learner.update([random_unroll(10 * update + group.rank, batch=3 - group.rank)])
        return learner.agent_steps, learner.weights()

    first, second = on_devices(lambda group: learned(group, DEVICE))
    expected, _ = learners(*[lambda group: learned(group, torch.device('cpu'))] * 2)
    for steps, weights in (first, second):
        assert steps == expected[0]
        for name, each in weights.items():
            np.testing.assert_allclose(each, expected[1][name], rtol=1e-5, atol=1e-6)
    assert all(np.array_equal(each, second[1][name]) for name, each in first[1].items())

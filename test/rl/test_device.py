"""Devices: choice, copies between host and device, and acting on the CPU."""

import copy
from types import SimpleNamespace

import fake_device
import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.common.settings import SettingError
from vdl_ros.rl.data.batch import make_batch
from vdl_ros.rl.data.unroll import UnrollSchema
from vdl_ros.rl.device import (
    CPU,
    DeviceMemory,
    HostMemory,
    choose_device,
    computes_bfloat16,
    describe,
    gather,
    memory_of,
    nccl_identity,
    send,
    to_host,
)
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.policy import precision
from vdl_ros.rl.train_config import TrainConfig

DEVICE = fake_device.DEVICE

CUDA = torch.device('cuda', 1)
CONFIG = TrainConfig(unroll_length=8, hidden_size=8, precision='float32')
IMAGES = gymnasium.spaces.Box(0, 255, (2, 36, 36), np.uint8)


@pytest.fixture
def cuda(monkeypatch):
    """Return a function: PyTorch finds so many devices, of that generation."""
    def find(count, generation=9):
        monkeypatch.setattr(torch.cuda, 'is_available', lambda: count > 0)
        monkeypatch.setattr(torch.cuda, 'device_count', lambda: count)
        monkeypatch.setattr(torch.cuda, 'get_device_name', lambda device: f'GPU {device.index}')
        monkeypatch.setattr(
            torch.cuda, 'get_device_capability', lambda device: (generation, 0))
        monkeypatch.setattr(
            torch.cuda, 'get_device_properties',
            lambda device: SimpleNamespace(uuid=f'uuid {device.index}'))
    return find


@pytest.mark.parametrize(('name', 'count', 'expected'), [
    ('auto', 0, ['cpu', 'cpu']), ('cpu', 2, ['cpu', 'cpu']),
    ('auto', 1, ['cuda:0', 'cuda:0', 'cuda:0']), ('cuda', 1, ['cuda:0', 'cuda:0']),
    ('auto', 2, ['cuda:0', 'cuda:1', 'cuda:0']), ('cuda', 3, ['cuda:0', 'cuda:1', 'cuda:2'])])
def test_learners_take_devices_in_turn(cuda, name, count, expected):
    cuda(count)
    assert [str(choose_device(name, rank)) for rank in range(len(expected))] == expected
    assert choose_device(name) == torch.device(expected[0])


def test_a_missing_device_is_rejected_with_one_line(cuda):
    cuda(0)
    with pytest.raises(SettingError) as error:
        choose_device('cuda')
    assert str(error.value) == ("device: 'cuda' is not allowed: PyTorch finds no CUDA device "
                                "here; 'auto' or 'cpu'")


def test_cuda_is_not_initialized_for_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: pytest.fail('it was asked'))
    assert choose_device('cpu') == CPU


def test_a_device_has_a_name(cuda):
    cuda(2)
    assert describe(CPU) == 'cpu'
    assert describe(CUDA) == 'GPU 1'


@pytest.mark.parametrize(('generation', 'expected'), [(7, False), (8, True), (9, True)])
def test_bfloat16_needs_units_for_it(cuda, generation, expected):
    cuda(2, generation)
    assert computes_bfloat16(CUDA) == expected
    assert not computes_bfloat16(DEVICE)


@pytest.mark.parametrize('there', [True, False])
def test_nccl_identity_is_the_uuid_of_the_gpu(cuda, monkeypatch, there):
    cuda(2)
    monkeypatch.setattr(torch.distributed, 'is_nccl_available', lambda: there)
    assert nccl_identity(CPU) == ''
    assert nccl_identity(CUDA) == ('uuid 1' if there else '')


def test_in_host_memory_nothing_is_copied_twice():
    memory, array = memory_of(CPU), np.arange(6.0).reshape(2, 3)
    assert type(memory) is HostMemory
    assert memory.take(array).data_ptr() == array.ctypes.data
    whole = memory.empty((2, 5, 3), np.uint8)
    assert whole.dtype == torch.uint8
    columns = memory.columns(whole, 1, 3)
    assert columns.data_ptr() == whole[:, 1].data_ptr()
    assert columns.shape == (2, 2, 3)
    columns.fill_(7)
    memory.put(whole, 1, columns)
    assert (whole[:, 1:3] == 7).all()
    tensor = torch.arange(3)
    assert send(tensor, CPU) is tensor
    assert to_host({'a': tensor})['a'] is tensor


def test_an_unroll_is_copied_while_the_next_is_decoded(
        fake, spaces, random_unroll, monkeypatch, same):
    schema, decode_into = UnrollSchema(*spaces, 8, 1), UnrollSchema.decode_into
    unrolls = [random_unroll(seed, batch=1 + seed) for seed in range(3)]
    memory, under_way = memory_of(DEVICE), []

    def spy(*args):
        under_way.append(len(memory._stream.queue))
        decode_into(*args)

    monkeypatch.setattr(UnrollSchema, 'decode_into', spy)
    batch = make_batch(unrolls, schema, memory)
    # Of each, one copy to the device, and one there to its columns.
    assert under_way == [0, 2, 4]
    assert fake.waits == []
    memory.wait_for_copies(batch.tensors)
    assert fake.waits == []
    expected = make_batch(unrolls, schema)
    assert same([each.cpu() for each in batch.tensors], list(expected.tensors))
    assert batch.sources == expected.sources


@pytest.mark.parametrize('shape', [(7, 5), (7, 5, 2, 3)])
def test_gather_copies_rows_once_without_waiting(fake, shape):
    rng = np.random.default_rng(0)
    table = torch.from_numpy(rng.integers(0, 256, shape, np.uint8))
    rows, columns = (torch.from_numpy(rng.integers(0, size, 11)) for size in shape[:2])
    for index in ((rows,), (rows, columns)):
        expected = table[index]
        assert torch.equal(gather(table, index, CPU), expected)
        found = gather(table, index, DEVICE)
        assert fake.waits == []
        assert torch.equal(found.cpu(), expected)
        fake.waits.clear()


def test_weights_are_copied_with_one_wait_and_do_not_change_later(fake, spaces, random_unroll):
    learner = Learner(CONFIG, *spaces, device=DEVICE)
    fake.waits.clear()
    weights = learner.weights()
    assert fake.waits == ['synchronize']
    before = copy.deepcopy(weights)
    expected = Learner(CONFIG, *spaces).weights()
    assert all(np.array_equal(weights[name], each) for name, each in expected.items())
    learner.update([random_unroll(0)])
    assert all(np.array_equal(weights[name], each) for name, each in before.items())
    assert any(np.abs(each - before[name]).max() > 1e-4
               for name, each in learner.weights().items())


def test_actors_of_a_learner_on_a_device_use_the_cpu(fake, monkeypatch):
    config = TrainConfig(network='nature', lstm_size=3)
    monkeypatch.setattr(precision, 'computes_bfloat16', lambda device: device == DEVICE)
    monkeypatch.setattr(precision, 'faster_in_bfloat16', lambda work: False)
    learner = Learner(config, IMAGES, gymnasium.spaces.Discrete(4), device=DEVICE)
    assert learner.policy.precision == torch.bfloat16
    policy = learner.copy_policy()
    assert policy.precision == torch.float32
    assert {each.device for each in policy.parameters()} == {CPU}
    assert learner.policy.policy_head.weight.device == DEVICE
    observations = torch.zeros(1, 2, *IMAGES.shape, dtype=torch.uint8)
    resets = torch.ones(1, 2, dtype=torch.bool)
    found, expected = (each(observations, resets, each.initial_state(2)) for each in (
        policy, Learner(config, IMAGES, gymnasium.spaces.Discrete(4)).policy))
    torch.testing.assert_close(found, expected)


def test_the_fake_device_rejects_what_cuda_rejects(fake):
    """Else tests with it would show nothing."""
    here = torch.ones(3, device=DEVICE)
    index = torch.tensor([0, 2])
    fake.waits.clear()
    assert (here[index] * torch.tensor(2.0)).tolist() == [2.0, 2.0]
    assert fake.waits == ['an index of host memory', 'a copy to the host']
    for wrong in (lambda: here + torch.ones(3), lambda: here.gather(0, index),
                  lambda: torch.stack([here[0], torch.tensor(1.0)])):
        with pytest.raises(RuntimeError, match='of host memory beside the device'):
            wrong()


def test_the_fake_device_detects_use_before_a_copy_is_done(fake):
    memory = DeviceMemory(DEVICE)
    taken = memory.take(np.arange(3.0))
    with pytest.raises(RuntimeError, match='used before its copy was waited for'):
        taken.sum()
    torch.cuda.current_stream(DEVICE).wait_stream(memory._stream)
    with pytest.raises(RuntimeError, match='a stream that its memory does not know of'):
        taken.sum()
    memory.wait_for_copies([taken])
    assert taken.tolist() == [0.0, 1.0, 2.0]
    with torch.cuda.stream(memory._stream), \
            pytest.raises(RuntimeError, match='on a stream that only copies'):
        taken.sum()
    pinned = torch.empty(3, dtype=torch.float64, pin_memory=True)
    pinned.copy_(taken, non_blocking=True)
    assert pinned.tolist() != [0.0, 1.0, 2.0]
    torch.cuda.current_stream(DEVICE).synchronize()
    assert pinned.tolist() == [0.0, 1.0, 2.0]

"""Tensors: round trip without change, views without copies, errors that name the tensor."""

import array
import itertools

import numpy as np
import pytest
import zstandard
from rclpy.serialization import deserialize_message, serialize_message
from refusals import refusal

from vdl_ros.msg import Policy, Tensor
from vdl_ros.ros.messages.tensors import (
    TensorError,
    array_length,
    from_tensors,
    num_bytes,
    to_tensors,
)

DTYPES = ['bool', 'uint8', 'int8', 'uint16', 'int16', 'uint32', 'int32', 'uint64', 'int64',
          'float16', 'float32', 'float64']


def travelled(arrays):
    sent = serialize_message(Policy(tensors=to_tensors(arrays)))
    return from_tensors(deserialize_message(sent, Policy).tensors)


def message(**fields):
    fields = {'name': 'x', 'dtype': 'float32', 'shape': [2], 'data': bytes(8)} | fields
    return Tensor(**fields | {'data': array.array('B', fields['data'])})


def refused(function, *arguments, **options):
    """Return the reason, in one line that names the tensor."""
    text = refusal(TensorError, function, *arguments, **options)
    assert text.startswith("tensor 'x': "), text
    return text


def test_every_dtype_and_shape_survives_the_round_trip():
    rng = np.random.default_rng(0)
    for dtype, shape in zip(DTYPES, itertools.cycle(
            [(3, 4), (2, 1, 3, 2), (), (0,), (2, 0, 3)]), strict=False):
        value = rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
        value = (value > 127).reshape(shape) if dtype == 'bool' else \
            value.view(dtype).reshape(shape)
        found = travelled({'x': value})['x']
        assert (found.dtype, found.shape) == (dtype, shape)
        assert found.tobytes() == value.tobytes(), (dtype, shape)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7e308])
    assert travelled({'x': special})['x'].tobytes() == special.tobytes()


def test_memory_layout_does_not_matter():
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    for name, value in {
            'transposed': whole.T, 'strided': whole[::2], 'reversed': whole[:, ::-1],
            'fortran': np.asfortranarray(whole), 'broadcast': np.broadcast_to(whole[:1], (5, 6)),
            'big-endian': whole.astype('>f4')}.items():
        found = travelled({'x': value})['x']
        assert found.dtype == np.dtype('<f4'), name
        assert np.array_equal(found, value), name


def test_names_and_their_order_are_kept():
    arrays = {name: np.zeros(i, np.uint8) for i, name in enumerate(['b', 'a', '', 'ß'])}
    assert list(travelled(arrays)) == list(arrays)
    assert num_bytes(to_tensors(arrays)) == 6


def test_sent_tensors_are_copies_and_received_ones_read_only_views():
    value = np.zeros(3, np.uint8)
    tensors = to_tensors({'x': value})
    value[:] = 7
    assert from_tensors(tensors)['x'].tolist() == [0, 0, 0]
    # Other types would be converted element by element, a thousand times slower.
    assert isinstance(tensors[0].data, array.array)
    for dtype in ('float32', 'bool'):
        tensors = to_tensors({'x': np.zeros(3, dtype)})
        found = from_tensors(tensors)['x']
        assert np.shares_memory(found, np.frombuffer(tensors[0].data, np.uint8)), dtype
        with pytest.raises(ValueError, match='read-only'):
            found[0] = 1


def test_unsupported_dtypes_are_rejected():
    for value in (np.zeros(2, complex), np.array([None]), np.zeros(2, [('a', 'u1')])):
        with pytest.raises(TensorError, match=r"^tensor 'w': dtype .* cannot be sent; [^\n]*$"):
            to_tensors({'w': value})


def test_malformed_tensors_are_named_with_the_reason():
    for fields, reason in (
            ({'dtype': 'bfloat16'}, "dtype 'bfloat16' is not one of"),
            ({'dtype': '<f4'}, "dtype '<f4' is not one of"),
            ({'data': bytes(9)}, '9 bytes, but float32 (2,) has 8'),
            ({'shape': []}, '8 bytes, but float32 () has 4'),
            ({'shape': [2**32 - 1] * 8}, '8 bytes, but float32 (4294967295, '),
            ({'shape': array.array('I', [2**32 - 1]) * 10**6}, 'shape of 1000000 axes'),
            ({'shape': [0] + [2**32 - 1] * 4, 'data': b''}, 'shape of 5 axes'),
            ({'dtype': 'bool', 'data': bytes([0, 2])}, 'a bool has the value 2')):
        assert reason in refused(from_tensors, [message(name='good'), message(**fields)])
    assert refused(from_tensors, [message(), message()]) == "tensor 'x': duplicate name"
    with pytest.raises(TensorError, match='more than 4096'):
        from_tensors(message(name=str(i)) for i in range(5000))
    assert len(from_tensors(message(name=str(i)) for i in range(4096))) == 4096


def test_compressed_arrays_are_smaller_and_come_back_as_they_were():
    rng = np.random.default_rng(0)
    arrays = {'frames': np.zeros((20, 84, 84), np.uint8), 'noise': rng.bytes(2000),
              'actions': np.zeros(20, np.int64), 'weights': np.ones((30, 30), np.float32).T[::2]}
    arrays['noise'] = np.frombuffer(arrays['noise'], np.uint8)
    sent = to_tensors(arrays, 'zstd')
    assert [each.dtype for each in sent] == ['uint8; zstd', 'uint8', 'int64', 'float32; zstd']
    assert num_bytes(sent) < 2000 + 160 + 200
    assert [array_length(each) for each in sent] == [each.nbytes for each in arrays.values()]
    found = from_tensors(sent, checked_lengths=True)
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value)
        assert not found[name].flags.writeable


def test_malformed_compressed_data_is_named_with_the_reason():
    """A few hundred bytes may be compressed gigabytes, so the lengths must be known."""
    bomb = to_tensors({'x': np.zeros(1 << 20, np.uint8)}, 'zstd')
    assert refused(from_tensors, bomb) == "tensor 'x': compressed arrays are not allowed here"
    for data, reason in (
            (bytes(30), 'cannot be decompressed: '),
            (zstandard.compress(bytes(1001)),
             'compressed data of 1001 bytes, but uint8; zstd [1000] has'),
            (zstandard.compress(bytes(1000))[:-3], 'cannot be decompressed: '),
            (zstandard.compress(bytes(1000)) + b'more', 'cannot be decompressed: '),
            (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000)),
             'compressed data of ')):
        tensor = message(dtype='uint8; zstd', shape=[1000], data=data)
        assert array_length(tensor) == 1000
        assert reason in refused(from_tensors, [tensor], checked_lengths=True)
    for fields, reason in (
            ({'dtype': 'float32; zstd'}, '8 compressed bytes of 8'),
            ({'dtype': 'object; zstd'}, "dtype 'object; zstd' is not one of"),
            ({'dtype': 'uint8; zstd', 'shape': [2] * 65}, 'shape of 65 axes')):
        assert reason in refused(array_length, message(**fields))

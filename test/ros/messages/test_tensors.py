"""Tensors: round trip without change, views without copies, errors that name the tensor."""

import array

import numpy as np
import pytest
import zstandard
from rclpy.serialization import deserialize_message, serialize_message

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
    """Return named arrays after serialisation and back."""
    sent = serialize_message(Policy(tensors=to_tensors(arrays)))
    return from_tensors(deserialize_message(sent, Policy).tensors)


def message(**fields):
    fields = {'name': 'x', 'dtype': 'float32', 'shape': [2], 'data': bytes(8)} | fields
    return Tensor(**fields | {'data': array.array('B', fields['data'])})


@pytest.mark.parametrize('shape', [(), (0,), (1,), (3, 4), (2, 0, 3), (2, 1, 3, 2)], ids=str)
@pytest.mark.parametrize('dtype', DTYPES)
def test_every_dtype_and_shape_survives_the_round_trip(dtype, shape):
    rng = np.random.default_rng(0)
    value = rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    value = (value > 127).reshape(shape) if dtype == 'bool' else value.view(dtype).reshape(shape)
    found = travelled({'x': value})['x']
    assert found.dtype == dtype
    assert found.shape == shape
    assert found.tobytes() == value.tobytes()


def test_special_numbers_survive_bit_by_bit():
    value = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7e308])
    assert travelled({'x': value})['x'].tobytes() == value.tobytes()


@pytest.mark.parametrize('view', [
    lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: np.asfortranarray(a),
    lambda a: np.broadcast_to(a[:1], (5, 6)), lambda a: a.astype('>f4')],
    ids=['transposed', 'strided', 'reversed', 'fortran', 'broadcast', 'big-endian'])
def test_memory_layout_does_not_matter(view):
    value = view(np.arange(24, dtype=np.float32).reshape(4, 6))
    found = travelled({'x': value})['x']
    assert found.dtype == np.dtype('<f4')
    assert np.array_equal(found, value)


def test_names_and_their_order_are_kept():
    arrays = {name: np.zeros(i, np.uint8) for i, name in enumerate(['b', 'a', '', 'ß'])}
    assert list(travelled(arrays)) == list(arrays)
    assert num_bytes(to_tensors(arrays)) == 6


def test_sent_tensors_are_copies():
    value = np.zeros(3, np.uint8)
    tensors = to_tensors({'x': value})
    value[:] = 7
    assert from_tensors(tensors)['x'].tolist() == [0, 0, 0]


@pytest.mark.parametrize('dtype', ['float32', 'bool'])
def test_received_tensors_are_read_only_views(dtype):
    tensors = to_tensors({'x': np.zeros(3, dtype)})
    found = from_tensors(tensors)['x']
    assert np.shares_memory(found, np.frombuffer(tensors[0].data, np.uint8))
    with pytest.raises(ValueError, match='read-only'):
        found[0] = 1


def test_data_is_assigned_as_one_array():
    # Other types are converted element by element, a thousand times slower.
    data = to_tensors({'x': np.zeros(3)})[0].data
    assert isinstance(data, array.array)
    assert data.typecode == 'B'
    assert isinstance(deserialize_message(
        serialize_message(message()), Tensor).data, array.array)


@pytest.mark.parametrize('value', [
    np.zeros(2, complex), np.array(['a']), np.array([None]), np.zeros(2, 'datetime64[s]'),
    np.zeros(2, [('a', 'u1')])], ids=lambda value: value.dtype.name)
def test_unsupported_dtypes_are_rejected(value):
    with pytest.raises(TensorError, match=r"^tensor 'weights': dtype .* cannot be sent; [^\n]*$"):
        to_tensors({'weights': value})


@pytest.mark.parametrize(('fields', 'reason'), [
    ({'dtype': 'bfloat16'}, "dtype 'bfloat16' is not one of"),
    ({'dtype': 'object'}, "dtype 'object' is not one of"),
    ({'dtype': '<f4'}, "dtype '<f4' is not one of"),
    ({'dtype': ''}, "dtype '' is not one of"),
    ({'data': bytes(7)}, '7 bytes, but float32 (2,) has 8'),
    ({'data': bytes(9)}, '9 bytes, but float32 (2,) has 8'),
    ({'data': b''}, '0 bytes, but float32 (2,) has 8'),
    ({'shape': []}, '8 bytes, but float32 () has 4'),
    ({'shape': [0]}, '8 bytes, but float32 (0,) has 0'),
    ({'shape': [2**32 - 1] * 8}, '8 bytes, but float32 (4294967295, '),
    ({'shape': [2] + [1] * 80}, 'shape of 81 axes'),
    ({'shape': [0] + [2**32 - 1] * 4, 'data': b''}, 'shape of 5 axes'),
    ({'dtype': 'bool', 'data': bytes([0, 2])}, 'a bool has the value 2'),
    ({'dtype': 'bool', 'data': bytes([255, 1])}, 'a bool has the value 255')], ids=str)
def test_malformed_tensors_are_named_with_the_reason(fields, reason):
    with pytest.raises(TensorError) as error:
        from_tensors([message(name='good'), message(**fields)])
    text = str(error.value)
    assert text.startswith("tensor 'x': ")
    assert reason in text
    assert '\n' not in text


def test_duplicate_names_are_rejected():
    with pytest.raises(TensorError, match=r"^tensor 'x': duplicate name$"):
        from_tensors([message(), message()])


def test_too_many_tensors_are_rejected():
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


def test_compressed_arrays_need_a_reader_that_knows_their_lengths():
    """A few hundred bytes may be compressed gigabytes."""
    bomb = to_tensors({'x': np.zeros(1 << 20, np.uint8)}, 'zstd')
    with pytest.raises(TensorError, match="^tensor 'x': compressed arrays are not allowed here$"):
        from_tensors(bomb)


@pytest.mark.parametrize(('data', 'reason'), [
    (bytes(30), 'cannot be decompressed: '),
    (zstandard.compress(bytes(1001)), 'compressed data of 1001 bytes, but uint8; zstd [1000] has'),
    (zstandard.compress(bytes(1000))[:-3], 'cannot be decompressed: '),
    (zstandard.compress(bytes(1000)) + b'more', 'cannot be decompressed: '),
    (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000)),
     'compressed data of ')], ids=['no-frame', 'longer', 'cut-off', 'more', 'unknown'])
def test_malformed_compressed_data_is_named_with_the_reason(data, reason):
    tensor = message(dtype='uint8; zstd', shape=[1000], data=data)
    assert array_length(tensor) == 1000
    with pytest.raises(TensorError) as error:
        from_tensors([tensor], checked_lengths=True)
    assert str(error.value).startswith("tensor 'x': ")
    assert reason in str(error.value)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize(('fields', 'reason'), [
    ({'dtype': 'float32; zstd'}, '8 compressed bytes of 8'),
    ({'dtype': 'object; zstd'}, "dtype 'object; zstd' is not one of"),
    ({'dtype': 'uint8; zstd', 'shape': [2] * 65}, 'shape of 65 axes')], ids=str)
def test_the_length_of_a_malformed_tensor_is_refused(fields, reason):
    with pytest.raises(TensorError) as error:
        array_length(message(**fields))
    assert str(error.value).startswith("tensor 'x': ")
    assert reason in str(error.value)

"""
Refuses ONNX files that hold more than a plain graph: before anything else reads them.

A file of ``export_policy`` has its weights inside and uses a few standard operators. Everything
that would lead out of the file, run other code or hide a part of the graph is refused: external
data, functions, subgraphs, operators of other domains. The file is read by the wire format of
Protocol Buffers (https://protobuf.dev/programming-guides/encoding/), so that a host that only acts
does not need the package ``onnx``; numbers of fields are those of ``onnx.proto`` (IR version 9).
"""

from __future__ import annotations

from collections.abc import Iterator

from vdl_ros.common.quoting import quoted

__all__ = ['OPERATORS', 'OnnxFileError', 'check_graph']

#: Operators that a policy consists of.
OPERATORS = frozenset((
    'Add', 'ArgMax', 'Cast', 'Clip', 'Concat', 'Constant', 'ConstantOfShape', 'Conv', 'Div', 'Elu',
    'Equal', 'Expand', 'Flatten', 'Gather', 'Gemm', 'Identity', 'Max', 'MaxPool', 'Min', 'Mul',
    'Not', 'OneHot', 'Pad', 'ReduceMax', 'Relu', 'Reshape', 'Shape', 'Sigmoid', 'Slice', 'Split',
    'Squeeze', 'Sub', 'Tanh', 'Transpose', 'Unsqueeze', 'Where'))

_DOMAINS = (b'', b'ai.onnx')
# Of a model: nodes that are trained, and functions. Of a graph: sparse weights. Of an attribute:
# graphs, sparse tensors, types, references. None of them is in a policy.
_NO_MODEL, _NO_GRAPH, _NO_ATTRIBUTE = (20, 25), (15,), (6, 11, 14, 15, 21, 22, 23)


class OnnxFileError(ValueError):
    """A file that is not a policy of this program; the message is one line."""


def check_graph(data: bytes) -> None:
    """
    Check a serialized ``ModelProto``.

    Raises:
        OnnxFileError: it is damaged, or has what a policy does not have.
    """
    graphs = 0
    for field, value in _fields(memoryview(data)):
        if field in _NO_MODEL:
            raise OnnxFileError('functions and training graphs are not allowed')
        if field == 8:
            _check_domain(_message(value))
        elif field == 7:
            graphs += 1
            _check_nodes(_message(value))
    if graphs != 1:
        raise OnnxFileError(f'not an ONNX file: {graphs} graphs')


def _check_domain(opset: memoryview) -> None:
    for field, value in _fields(opset):
        if field == 1 and bytes(_message(value)) not in _DOMAINS:
            raise OnnxFileError(f'operators of {_text(value)} are not allowed')


def _check_nodes(graph: memoryview) -> None:
    for field, value in _fields(graph):
        if field in _NO_GRAPH:
            raise OnnxFileError('sparse weights are not allowed')
        if field == 5:
            _check_tensor(_message(value))
        elif field == 1:
            _check_node(_message(value))


def _check_node(node: memoryview) -> None:
    for field, value in _fields(node):
        if field == 7 and bytes(_message(value)) not in _DOMAINS:
            raise OnnxFileError(f'operators of {_text(value)} are not allowed')
        if field == 4 and bytes(_message(value)).decode('latin-1') not in OPERATORS:
            raise OnnxFileError(f'operator {_text(value)} is not allowed')
        if field == 5:
            _check_attribute(_message(value))


def _check_attribute(attribute: memoryview) -> None:
    for field, value in _fields(attribute):
        if field in _NO_ATTRIBUTE:
            raise OnnxFileError('subgraphs, sparse tensors and references are not allowed')
        if field in (5, 10):
            _check_tensor(_message(value))


def _check_tensor(tensor: memoryview) -> None:
    for field, value in _fields(tensor):
        if field == 13 or (field == 14 and value != 0):
            raise OnnxFileError('weights in other files (external data) are not allowed')


def _text(value: int | memoryview) -> str:
    return quoted(bytes(_message(value)[:200]).decode('utf-8', 'replace'), 40)


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise OnnxFileError('not an ONNX file: a field has the wrong type')
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """
    Return number and value of each field of a message.

    Raises:
        OnnxFileError: the message is damaged.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise OnnxFileError('not an ONNX file: an unknown kind of field')
        if size > len(data) - at:
            raise OnnxFileError('not an ONNX file, or cut short')
        yield key >> 3, data[at:at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a whole number, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
    raise OnnxFileError('not an ONNX file, or cut short')

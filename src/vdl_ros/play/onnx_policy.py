"""Refuses ONNX files that hold more than a plain graph: before anything else reads them.

A file of ``export_policy`` has its weights inside and uses a few standard operators. Everything
that would lead out of the file, run other code or hide a part of the graph is refused: external
data, functions, subgraphs, operators of other domains. The file is read by the wire format of
Protocol Buffers (https://protobuf.dev/programming-guides/encoding/), so that a host that only acts
does not need the package ``onnx``; numbers of fields are those of ``onnx.proto`` (IR version 9).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted

__all__ = ['ActionError', 'FORMAT', 'Input', 'KEY', 'OPERATORS', 'OnnxFileError', 'OnnxPolicy',
           'Outputs', 'PolicyMetadata', 'check_graph', 'load_onnx_policy', 'parse']


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
    """Check a serialized ``ModelProto``.

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
    """Return number and value of each field of a message.

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


#: Of the JSON text in ``metadata_props``.
KEY = 'vdl_ros'
FORMAT = 1
_DTYPES = ('bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float32', 'float64')
_LONGEST = 1 << 24
# Numbers of an observation or a state.
_MOST_NUMBERS = 1 << 26


class Input(NamedTuple):
    """An observation, or a part of it, as an input of the graph: [B, *shape] of ``dtype``."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class PolicyMetadata:
    """The values that a program needs to act.

    Attributes:
        agent_steps: number of agent steps learned from.
        environment: settings of the environment that are not the default, and ``env_id``.
        description: what the environment said of itself; {} for most.
        inputs: of an observation: one, or ``image`` and ``numbers``.
        sizes: of discrete actions, the number of choices of each part; () for numbers.
        state_size: S; 0 if the policy has no state.
        last_reward: index of the last reward in the state; None if it is not an input.
    """

    algorithm: str
    agent_steps: int
    environment: Mapping[str, Any]
    description: Mapping[str, Any]
    inputs: tuple[Input, ...]
    sizes: tuple[int, ...]
    action_shape: tuple[int, ...]
    state_size: int
    last_reward: int | None


def parse(text: str) -> PolicyMetadata:
    """Return the metadata of a file, which may come from anywhere.

    Raises:
        OnnxFileError: it is not that of a policy of this program.
    """
    if len(text) > _LONGEST:
        raise OnnxFileError(f'metadata {KEY}: longer than {_LONGEST} characters')
    try:
        found = json.loads(text)
        if found['format'] != FORMAT or type(found['format']) is not int:
            raise OnnxFileError(
                f'metadata {KEY}: format {quoted(found["format"])} is not {FORMAT}')
        action, state = found['action'], found['state'] or {}
        last = state.get('last_reward_index')
        sizes = tuple(_whole(each, 1) for each in _of(list, action['sizes']))
        shape = tuple(_whole(each) for each in _of(list, action['shape']))
        if sizes and shape != (len(sizes),) and (shape or len(sizes) > 1):
            raise ValueError(f'action: shape {shape} of {len(sizes)} sizes')
        return PolicyMetadata(
            _of(str, found['algorithm']), _whole(found['agent_steps']),
            _of(dict, found['environment']), _of(dict, found['description']),
            tuple(_input(each) for each in _of(list, found['observation']['inputs'])),
            sizes, shape, _whole(state['size'], 1, _MOST_NUMBERS) if state else 0,
            None if last is None else _whole(last))
    except OnnxFileError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f'{type(error).__name__}: {" ".join(str(error).split())[:80]}'
        raise OnnxFileError(f'metadata {KEY}: not that of a policy: {reason}') from None


def _input(found: Mapping[str, Any]) -> Input:
    shape, dtype = _of(list, found['shape']), found['dtype']
    if dtype not in _DTYPES:
        raise ValueError(f'dtype {quoted(dtype)}')
    sizes = tuple(_whole(each, 1, _MOST_NUMBERS) for each in shape)
    if math.prod(sizes) > _MOST_NUMBERS:
        raise ValueError(f'shape {sizes}')
    return Input(_of(str, found['name']), sizes, np.dtype(dtype).name)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f'{quoted(value, 40)} is no {kind.__name__}')
    return value


def _whole(value: Any, low: int = 0, high: int = 1 << 53) -> int:
    number: int = _of(int, value)
    if not low <= number <= high:
        raise ValueError(f'{quoted(value, 40)} is not allowed')
    return number


# Types of onnxruntime by names of NumPy.
_TYPES = {'float32': 'float', 'float64': 'double'}
_LARGEST = 1 << 30  # bytes


class ActionError(RuntimeError):
    """The outputs of a policy cannot be used; the message is one line."""


class Outputs(NamedTuple):
    """Outputs of a policy for B observations.

    Attributes:
        parameters: float32 [B, P], of the action distribution.
        actions: the most likely ones, int64 [B] or [B, A], or float32 [B, A].
        values: float32 [B].
        state: float32 [B, S], for the next observations; S is 0 if the policy has no state.
    """

    parameters: NDArray[np.float32]
    actions: NDArray[Any]
    values: NDArray[np.float32]
    state: NDArray[np.float32]


class OnnxPolicy:
    """A policy as a function from observations [B, ...] to the most likely actions.

    Raises:
        OnnxFileError: they are not a policy of this program, or onnxruntime is missing.
    """

    def __init__(self, data: bytes) -> None:
        check_graph(data)
        self._session = _open(data)
        properties = self._session.get_modelmeta().custom_metadata_map
        if KEY not in properties:
            raise OnnxFileError('not a file of export_policy: it does not describe a policy')
        self.metadata = found = parse(properties[KEY])
        self._names = ['parameters', 'action', 'value', *(['next_state'] if found.state_size
                                                         else [])]
        self._state = np.zeros((0, found.state_size), np.float32)
        self._check_inputs()
        try:
            # Shapes of outputs are only known by outputs.
            self.step(self._zeros())
        except ActionError as error:
            raise OnnxFileError(f'observation 0: {error}') from None
        self._state = self._state[:0]

    def __call__(
        self, observations: NDArray[Any], is_reset: NDArray[np.bool_] | None = None,
        rewards: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Return the actions of :meth:`step`."""
        return self.step(observations, is_reset, rewards).actions

    def step(
        self, observations: NDArray[Any], is_reset: NDArray[np.bool_] | None = None,
        rewards: NDArray[Any] | None = None,
    ) -> Outputs:
        """Return what the policy makes of observations, and keep its state.

        Args:
            observations: [B, ...]; an image and numbers are rows of bytes as of
                ``ImageAndVector``.
            is_reset: [B] bool, where an episode starts; default: nowhere. The state is reset
                there, and everywhere when B changes.
            rewards: [B] float, of the previous actions; default: 0.

        Raises:
            ActionError: outputs are not finite, not allowed, or of a wrong shape.
        """
        batch, found = len(observations), self.metadata
        if len(self._state) != batch:
            self._state = np.zeros((batch, found.state_size), np.float32)
        elif found.last_reward is not None and rewards is not None:
            self._state[:, found.last_reward] = np.clip(rewards, -1.0, 1.0)
        if is_reset is not None:
            self._state[is_reset] = 0.0
        inputs = self._split(observations)
        if found.state_size:
            inputs['state'] = self._state
        try:
            made = self._session.run(self._names, inputs)
        # onnxruntime's own errors have no common class.
        except Exception as error:
            raise ActionError(_reason(error)) from None
        outputs = Outputs(*made, *([] if found.state_size else [self._state]))
        self._check(outputs, batch)
        self._state = outputs.state.copy()
        return outputs

    def _split(self, observations: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the inputs of the graph for observations."""
        inputs = self.metadata.inputs
        if len(inputs) == 1:
            return {inputs[0].name: np.ascontiguousarray(observations, inputs[0].dtype)}
        image, numbers = inputs
        size = 4 * numbers.shape[0]
        rows = np.ascontiguousarray(observations)
        return {
            numbers.name: np.ascontiguousarray(rows[:, :size]).view(np.float32),
            image.name: np.ascontiguousarray(rows[:, size:]).view(image.dtype).reshape(
                len(rows), *image.shape)}

    def _zeros(self) -> NDArray[Any]:
        """Return one observation of zeros."""
        inputs = self.metadata.inputs
        if len(inputs) == 1:
            return np.zeros((1, *inputs[0].shape), inputs[0].dtype)
        return np.zeros((1, sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize
                                for each in inputs)), np.uint8)

    def _check_inputs(self) -> None:
        """Compare the inputs of the graph with the metadata.

        Raises:
            OnnxFileError: they differ.
        """
        found = self.metadata
        wanted = {each.name: (_TYPES.get(each.dtype, each.dtype), each.shape)
                  for each in found.inputs}
        parts = [(each.name, each.dtype, len(each.shape)) for each in found.inputs[1:]]
        if len(found.inputs) not in (1, 2) or len(wanted) != len(found.inputs) or (
                parts and (parts[0][1:] != ('float32', 1)
                           or found.inputs[0].dtype not in ('uint8', 'float32'))):
            raise OnnxFileError('inputs: one observation, or an image and numbers')
        if found.state_size:
            wanted['state'] = ('float', (found.state_size,))
        if found.last_reward is not None and found.last_reward >= found.state_size:
            raise OnnxFileError(f'last_reward_index: {found.last_reward} is not in the state')
        have = {each.name: (each.type[len('tensor('):-1], tuple(each.shape[1:]))
                for each in self._session.get_inputs()}
        if have != wanted:
            raise OnnxFileError(f'inputs: {have} are not {wanted}, those of its metadata')
        names = {each.name for each in self._session.get_outputs()}
        if names != {*self._names}:
            raise OnnxFileError(f'outputs: {sorted(names)} are not {sorted(self._names)}')

    def _check(self, outputs: Outputs, batch: int) -> None:
        """Check outputs for B observations.

        Raises:
            ActionError: names what is wrong.
        """
        found, sizes = self.metadata, self.metadata.sizes
        shapes = [(batch, *outputs.parameters.shape[1:2]), (batch, *found.action_shape), (batch,),
                  (batch, found.state_size)]
        dtypes = [np.float32, np.int64 if sizes else np.float32, np.float32, np.float32]
        for name, array, shape, dtype in zip(Outputs._fields, outputs, shapes, dtypes,
                                             strict=True):
            if array.shape != shape or array.dtype != dtype:
                raise ActionError(f'{name}: {array.dtype} {list(array.shape)} is not '
                                  f'{np.dtype(dtype).name} {list(shape)}')
            if not np.isfinite(array).all():
                raise ActionError(f'{name}: not all are finite')
        if sizes and not ((outputs.actions >= 0) & (outputs.actions < np.array(
                sizes if found.action_shape else sizes[0]))).all():
            raise ActionError(f'actions: {outputs.actions.tolist()} are not within {list(sizes)}')


def load_onnx_policy(path: Path) -> OnnxPolicy:
    """Return the policy of a file.

    Raises:
        OnnxFileError: it cannot be used; the message is one line that names the file.
        OSError: it cannot be read.
    """
    if not path.is_file():
        raise OnnxFileError(f'{path}: no such file')
    if path.stat().st_size > _LARGEST:
        raise OnnxFileError(f'{path}: larger than {_LARGEST >> 30} GiB')
    try:
        return OnnxPolicy(path.read_bytes())
    except OnnxFileError as error:
        raise OnnxFileError(f'{path}: {error}') from None


def _open(data: bytes) -> Any:
    """Return a session of onnxruntime.

    Raises:
        OnnxFileError: the graph cannot be run.
    """
    try:
        import onnxruntime
    except ImportError:
        raise OnnxFileError('onnxruntime is not installed here: pip install onnxruntime') from None
    options = onnxruntime.SessionOptions()
    # More threads do not pay for one observation.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Errors are raised; it would print them as well.
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(
            data, options, providers=['CPUExecutionProvider'])
    # onnxruntime's own errors have no common class.
    except Exception as error:
        raise OnnxFileError(f'onnxruntime refuses it: {_reason(error)}') from None


def _reason(error: Exception) -> str:
    return ' '.join(str(error).split())[:200]

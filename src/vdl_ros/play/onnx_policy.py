"""Policies in ONNX files of ``export_policy``, run by onnxruntime without PyTorch.

A file has its weights inside and uses a few standard operators. What would lead out of the file,
run other code or hide a part of the graph is refused before onnxruntime sees it: external data,
functions, subgraphs, operators of other domains.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.memory import memory_limit
from vdl_ros.common.quoting import quoted
from vdl_ros.play.plain_spaces import PlainSpace

#: Operators that a policy consists of.
OPERATORS = frozenset((
    'Add', 'ArgMax', 'Cast', 'Clip', 'Concat', 'Constant', 'ConstantOfShape', 'Conv', 'Div', 'Elu',
    'Equal', 'Expand', 'Flatten', 'Gather', 'Gemm', 'Identity', 'Max', 'MaxPool', 'Min', 'Mul',
    'Not', 'OneHot', 'Pad', 'ReduceMax', 'Relu', 'Reshape', 'Shape', 'Sigmoid', 'Slice', 'Split',
    'Squeeze', 'Sub', 'Tanh', 'Transpose', 'Unsqueeze', 'Where'))
#: Of the JSON text in ``metadata_props``.
KEY = 'vdl_ros'
FORMAT = 1
_MISSING = 'is not installed here: pip install onnx onnxruntime'
# Numbers of an observation or a state.
_MAX_NUMBERS = 1 << 26
_MAX_BYTES = 1 << 30  # bytes
# Types of onnxruntime by names of NumPy.
_TYPES = {'float32': 'float', 'float64': 'double'}


class OnnxFileError(ValueError):
    """A file that is not a policy of this program; the message is one line."""


class ActionError(RuntimeError):
    """The outputs of a policy cannot be used; the message is one line."""


_Size = Annotated[int, msgspec.Meta(ge=1, le=_MAX_NUMBERS)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_Start = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]


class Input(msgspec.Struct, frozen=True):
    """An observation, or a part of it, as an input of the graph: [B, *shape] of ``dtype``."""

    name: str
    shape: tuple[_Size, ...]
    dtype: Literal['bool', 'uint8', 'int8', 'int16', 'int32', 'int64', 'float32', 'float64']

    def __post_init__(self) -> None:
        if math.prod(self.shape) > _MAX_NUMBERS:
            raise ValueError(f'shape {self.shape} is not allowed: {_MAX_NUMBERS} numbers')


class _Observation(msgspec.Struct, frozen=True):
    """One input, or ``image`` and ``numbers``."""

    inputs: Annotated[tuple[Input, ...], msgspec.Meta(min_length=1, max_length=2)]

    def __post_init__(self) -> None:
        if len(self.inputs) == 2:
            image, numbers = self.inputs
            if image.name == numbers.name or image.dtype not in ('uint8', 'float32') \
                    or numbers.dtype != 'float32' or len(numbers.shape) != 1:
                raise ValueError('inputs: one observation, or an image and numbers')


class _Action(msgspec.Struct, frozen=True):
    """``sizes`` has the number of choices of each part; of numbers it is empty.

    ``starts`` has the first choice of each part; empty: 0.
    """

    sizes: tuple[_Size, ...]
    shape: tuple[_Natural, ...]
    starts: tuple[_Start, ...] = ()

    def __post_init__(self) -> None:
        if self.starts and len(self.starts) != len(self.sizes):
            raise ValueError(f'starts: {len(self.starts)} of {len(self.sizes)} sizes')
        if self.sizes and self.shape != (len(self.sizes),) and (self.shape or len(self.sizes) > 1):
            raise ValueError(f'shape {self.shape} of {len(self.sizes)} sizes')


class _State(msgspec.Struct, frozen=True):
    """``last_reward_index`` is None if the last reward is not an input."""

    size: _Size
    last_reward_index: _Natural | None = None

    def __post_init__(self) -> None:
        if self.last_reward_index is not None and self.last_reward_index >= self.size:
            raise ValueError(f'last_reward_index: {self.last_reward_index} is not in the state')


class PolicyMetadata(msgspec.Struct, frozen=True):
    """What a program needs to act, of the JSON text in a file.

    ``environment`` has the settings that are not the default, and ``env_id``; ``description`` is
    what the environment said of itself, {} for most.
    """

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)]
    algorithm: str
    agent_steps: _Natural
    environment: dict[str, Any]
    description: dict[str, Any]
    observation: _Observation
    action: _Action
    state: _State | None
    # Of the environment's observations and actions; files of earlier versions have none.
    spaces: tuple[PlainSpace, PlainSpace] | None = None

    @property
    def state_size(self) -> int:
        """S; 0 if the policy has no state."""
        return self.state.size if self.state else 0

    @property
    def last_reward(self) -> int | None:
        """Index of the last reward in the state; None if it is not an input."""
        return self.state.last_reward_index if self.state else None


def _check_graph(data: bytes) -> None:
    """Refuse a serialized ``ModelProto`` that has what a policy does not have."""
    try:
        import onnx
    except ImportError:
        raise OnnxFileError(f'onnx {_MISSING}') from None
    try:
        model = onnx.load_model_from_string(data)
    # The error of protobuf.
    except Exception:
        raise OnnxFileError('not an ONNX file, or cut short') from None
    graph = model.graph
    if model.functions or model.training_info:
        raise OnnxFileError('functions and training graphs are not allowed')
    for domain in (each.domain for each in (*model.opset_import, *graph.node)):
        if domain not in ('', 'ai.onnx'):
            raise OnnxFileError(f'operators of {quoted(domain, 40)} are not allowed')
    tensors = list(graph.initializer)
    for node in graph.node:
        if node.op_type not in OPERATORS:
            raise OnnxFileError(f'operator {quoted(node.op_type, 40)} is not allowed')
        for each in node.attribute:
            # Beside plain values an attribute may only have tensors.
            if each.ref_attr_name or {field.name for field, _ in each.ListFields()} - _ATTRIBUTE:
                raise OnnxFileError('subgraphs, sparse tensors and references are not allowed')
            tensors += [each.t, *each.tensors]
    if graph.sparse_initializer:
        raise OnnxFileError('sparse weights are not allowed')
    if any(each.external_data or each.data_location for each in tensors):
        raise OnnxFileError('weights in other files (external data) are not allowed')


# Fields of an attribute that a policy has.
_ATTRIBUTE = {'name', 'type', 'doc_string', 'f', 'i', 's', 't', 'floats', 'ints', 'strings',
              'tensors'}


class Outputs(NamedTuple):
    """Outputs of a policy for B observations.

    ``parameters`` are of the action distribution, [B, P]; ``actions`` the most likely ones, [B] or
    [B, A]; ``state`` is for the next observations, [B, S], where S may be 0.
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
        _check_graph(data)
        self._session = _open(data)
        properties = self._session.get_modelmeta().custom_metadata_map
        if KEY not in properties:
            raise OnnxFileError('not a file of export_policy: it does not describe a policy')
        try:
            self.metadata = found = msgspec.json.decode(properties[KEY], type=PolicyMetadata)
        except (msgspec.DecodeError, RecursionError) as error:
            raise OnnxFileError(f'metadata {KEY}: {_reason(error)}') from None
        self._names = ['parameters', 'action', 'value', *(['next_state'] if found.state_size
                                                         else [])]
        self._state = np.zeros((0, found.state_size), np.float32)
        self._check_inputs()
        try:
            # Shapes of outputs are only known by outputs.
            self._run({each.name: np.zeros((1, *each.shape), each.dtype)
                       for each in found.observation.inputs},
                      np.zeros((1, found.state_size), np.float32))
        except ActionError as error:
            raise OnnxFileError(f'observation 0: {error}') from None

    def __call__(
        self, observations: NDArray[Any], is_reset: NDArray[np.bool_] | None = None,
        rewards: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        return self.step(observations, is_reset, rewards).actions

    def step(
        self, observations: NDArray[Any], is_reset: NDArray[np.bool_] | None = None,
        rewards: NDArray[Any] | None = None,
    ) -> Outputs:
        """Return what the policy makes of observations, and keep its state.

        Args:
            observations: [B, ...]; an image and numbers are rows of ``ImageAndVector``.
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
        outputs = self.advance(observations, self._state)
        self._state = outputs.state.copy()
        return outputs

    def advance(self, observations: NDArray[Any], state: NDArray[np.float32]) -> Outputs:
        """Return what the policy makes of observations and a state, [B, ...] and [B, S]."""
        return self._run(self._split(observations), state)

    def _run(self, inputs: dict[str, NDArray[Any]], state: NDArray[Any]) -> Outputs:
        """Return checked outputs for inputs of the graph and a state [B, S]."""
        if self.metadata.state_size:
            inputs['state'] = state
        try:
            made = self._session.run(self._names, inputs)
        # onnxruntime's own errors have no common class.
        except Exception as error:
            raise ActionError(_reason(error)) from None
        outputs = Outputs(*made, *([] if self.metadata.state_size else [state]))
        self._check(outputs, len(state))
        return outputs

    def _split(self, observations: NDArray[Any]) -> dict[str, NDArray[Any]]:
        inputs = self.metadata.observation.inputs
        if len(inputs) == 1:
            return {inputs[0].name: np.ascontiguousarray(observations, inputs[0].dtype)}
        image, numbers = inputs
        size = 4 * numbers.shape[0]
        rows = np.ascontiguousarray(observations)
        return {
            numbers.name: np.ascontiguousarray(rows[:, :size]).view(np.float32),
            image.name: np.ascontiguousarray(rows[:, size:]).view(image.dtype).reshape(
                len(rows), *image.shape)}

    def _check_inputs(self) -> None:
        """Compare the inputs of the graph with the metadata."""
        found = self.metadata
        wanted = {each.name: (_TYPES.get(each.dtype, each.dtype), each.shape)
                  for each in found.observation.inputs}
        if found.state_size:
            wanted['state'] = ('float', (found.state_size,))
        have = {each.name: (each.type[len('tensor('):-1], tuple(each.shape[1:]))
                for each in self._session.get_inputs()}
        if have != wanted:
            raise OnnxFileError(f'inputs: {have} are not {wanted}, those of its metadata')
        names = {each.name for each in self._session.get_outputs()}
        if names != {*self._names}:
            raise OnnxFileError(f'outputs: {sorted(names)} are not {sorted(self._names)}')

    def _check(self, outputs: Outputs, batch: int) -> None:
        sizes, shape = self.metadata.action.sizes, self.metadata.action.shape
        shapes = [(batch, *outputs.parameters.shape[1:2]), (batch, *shape), (batch,),
                  (batch, self.metadata.state_size)]
        dtypes = [np.float32, np.int64 if sizes else np.float32, np.float32, np.float32]
        for name, array, wanted, dtype in zip(Outputs._fields, outputs, shapes, dtypes,
                                              strict=True):
            if array.shape != wanted or array.dtype != dtype:
                raise ActionError(f'{name}: {array.dtype} {list(array.shape)} is not '
                                  f'{np.dtype(dtype).name} {list(wanted)}')
            if not np.isfinite(array).all():
                raise ActionError(f'{name}: not all are finite')
        if not sizes:
            return
        starts = self.metadata.action.starts or (0,) * len(sizes)
        actions = outputs.actions.reshape(batch, len(sizes)) - starts
        if not ((actions >= 0) & (actions < sizes)).all():
            raise ActionError(f'actions: {outputs.actions.tolist()} are not within {list(sizes)}'
                              + f' from {list(starts)}' * any(starts))


def load_onnx_policy(path: Path) -> OnnxPolicy:
    """Return the policy of a file.

    Raises:
        OnnxFileError: it cannot be used; the message is one line that names the file.
    """
    if not path.is_file():
        raise OnnxFileError(f'{path}: no such file')
    if path.stat().st_size > _MAX_BYTES:
        raise OnnxFileError(f'{path}: larger than {_MAX_BYTES >> 30} GiB')
    try:
        return OnnxPolicy(path.read_bytes())
    except OnnxFileError as error:
        raise OnnxFileError(f'{path}: {error}') from None


def _open(data: bytes) -> Any:
    """Return a session of onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        raise OnnxFileError(f'onnxruntime {_MISSING}') from None
    options = onnxruntime.SessionOptions()
    # More threads do not pay for one observation.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Errors are raised; it would print them as well.
    options.log_severity_level = 4
    # A small graph may make tensors of any size. Constants are computed by each run as well,
    # because what computes them once has no limit.
    _limit_memory()
    options.add_session_config_entry('session.use_env_allocators', '1')
    # Not its own format, which nobody has checked.
    options.add_session_config_entry('session.load_model_format', 'ONNX')
    try:
        return onnxruntime.InferenceSession(
            data, options, providers=['CPUExecutionProvider'],
            disabled_optimizers=['ConstantFolding'])
    # onnxruntime's own errors have no common class.
    except Exception as error:
        raise OnnxFileError(f'onnxruntime refuses it: {_reason(error)}') from None


@functools.cache
def _limit_memory() -> None:
    """Limit the memory of all policies of this process, weights included."""
    import onnxruntime
    onnxruntime.create_and_register_allocator(
        onnxruntime.OrtMemoryInfo('Cpu', onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0,
                                  onnxruntime.OrtMemType.DEFAULT),
        onnxruntime.OrtArenaCfg({'max_mem': min(_MAX_BYTES, memory_limit())}))


def _reason(error: Exception) -> str:
    text = ' '.join(str(error).split())
    # Before it onnxruntime only says where in its source.
    _, memory, rest = text.partition('Available memory')
    return (memory + rest or text)[:200]

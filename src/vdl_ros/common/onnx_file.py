"""Networks in ONNX files: written from PyTorch, read and run by onnxruntime without it.

A file has its weights inside, uses a few standard operators, and says in ``metadata_props`` what
it is. What would lead out of the file, run other code or hide a part of the graph is refused
before onnxruntime sees it: external data, functions, subgraphs, operators of other domains.
"""

import functools
import importlib.util
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vdl_ros.common.memory import memory_limit
from vdl_ros.common.quoting import quoted

T = TypeVar('T')
#: Operators that a network consists of.
OPERATORS = frozenset((
    'Add', 'ArgMax', 'Cast', 'Clip', 'Concat', 'Constant', 'ConstantOfShape', 'Conv', 'Div', 'Elu',
    'Equal', 'Expand', 'Flatten', 'Gather', 'Gemm', 'Identity', 'Max', 'MaxPool', 'Min', 'Mul',
    'Not', 'OneHot', 'Pad', 'ReduceMax', 'Relu', 'Reshape', 'Shape', 'Sigmoid', 'Slice', 'Split',
    'Squeeze', 'Sub', 'Tanh', 'Transpose', 'Unsqueeze', 'Where'))
#: Of the JSON text in ``metadata_props``.
KEY = 'vdl_ros'
_MISSING = 'is not installed here: pip install onnx onnxruntime'
_MAX_BYTES = 1 << 30  # bytes
# Version of the operators, which onnxruntime 1.17 and later know.
_OPSET = 20


class OnnxFileError(ValueError):
    """A file that cannot be used, or not be written; the message is one line."""


def require_onnx() -> None:
    """Check that files can be written, before what takes long; OnnxFileError: a package lacks."""
    for name in ('onnx', 'onnxruntime'):
        if importlib.util.find_spec(name) is None:
            raise OnnxFileError(f'{name} {_MISSING}')


def load_onnx(path: Path, make: Callable[[bytes], T]) -> T:
    """Return what ``make`` makes of a file; OnnxFileError: one line that names the file."""
    if not path.is_file():
        raise OnnxFileError(f'{path}: no such file')
    if path.stat().st_size > _MAX_BYTES:
        raise OnnxFileError(f'{path}: larger than {_MAX_BYTES >> 30} GiB')
    try:
        return make(path.read_bytes())
    except OnnxFileError as error:
        raise OnnxFileError(f'{path}: {error}') from None


def open_onnx(data: bytes, kind: type[T], what: str) -> tuple[Any, T]:
    """Return a session of onnxruntime, and the metadata; OnnxFileError: no file of ``what``."""
    _check_graph(data)
    session = _open(data)
    properties = session.get_modelmeta().custom_metadata_map
    if KEY not in properties:
        raise OnnxFileError(f'not a file of {what}: it does not describe itself')
    try:
        return session, msgspec.json.decode(properties[KEY], type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise OnnxFileError(f'metadata {KEY}: {reason_of(error)}') from None


def onnx_inputs(session: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape, without the batch, of each input by its name."""
    return {each.name: (each.type[len('tensor('):-1], tuple(each.shape[1:]))
            for each in session.get_inputs()}


def serialize_onnx(
    module: Any, inputs: Mapping[str, Any], outputs: Sequence[str], metadata: Mapping[str, Any],
) -> bytes:
    """Return the bytes of a file; OnnxFileError: the module cannot be exported.

    ``inputs`` are tensors of the shapes of the module's, by name; their first dimension, and that
    of all outputs, is the batch.
    """
    import torch
    onnx, stream, names = _onnx(), io.BytesIO(), [*inputs]
    with warnings.catch_warnings():
        # Of the tracer, about shapes that do not change; and that there is another exporter.
        warnings.simplefilter('ignore')
        try:
            torch.onnx.export(
                module, tuple(inputs.values()), stream,  # type: ignore[arg-type]
                input_names=names, output_names=outputs, opset_version=_OPSET, dynamo=False,
                dynamic_axes={name: {0: 'batch'} for name in (*names, *outputs)})
        except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
            raise OnnxFileError(reason_of(error)) from None
    model = onnx.load_model_from_string(stream.getvalue())
    model.producer_name = 'vdl_ros'
    onnx.helper.set_model_props(model, {KEY: json.dumps(metadata, allow_nan=False)})
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise OnnxFileError(f'onnx {_MISSING}') from None
    return onnx


def _check_graph(data: bytes) -> None:
    """Refuse a serialized ``ModelProto`` that has what no network has."""
    onnx = _onnx()
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


# Fields of an attribute that a network has.
_ATTRIBUTE = {'name', 'type', 'doc_string', 'f', 'i', 's', 't', 'floats', 'ints', 'strings',
              'tensors'}


def _open(data: bytes) -> Any:
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
        raise OnnxFileError(f'onnxruntime refuses it: {reason_of(error)}') from None


@functools.cache
def _limit_memory() -> None:
    """Limit the memory of all networks of this process, weights included."""
    import onnxruntime
    onnxruntime.create_and_register_allocator(
        onnxruntime.OrtMemoryInfo('Cpu', onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0,
                                  onnxruntime.OrtMemType.DEFAULT),
        onnxruntime.OrtArenaCfg({'max_mem': min(_MAX_BYTES, memory_limit())}))


def reason_of(error: Exception) -> str:
    text = ' '.join(str(error).split())
    # Before it onnxruntime only says where in its source.
    _, memory, rest = text.partition('Available memory')
    return (memory + rest or text)[:200]

"""
Writes the policy of a checkpoint as an ONNX file, and compares it with PyTorch before.

PyTorch's exporter by TorchScript needs no package beside ``onnx``; the newer one does.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch

from vdl_ros.common.run_files import atomic_file
from vdl_ros.envs import factory
from vdl_ros.envs.canonical_spaces import Column
from vdl_ros.envs.registration import REACH
from vdl_ros.onnx_policy.description import describe, inputs_of
from vdl_ros.onnx_policy.graph import PolicyGraph
from vdl_ros.onnx_policy.metadata import KEY
from vdl_ros.onnx_policy.onnx_policy import OnnxFileError, OnnxPolicy
from vdl_ros.onnx_policy.parity import Parity, check_parity
from vdl_ros.rl.runs.checkpoint import load_checkpoint
from vdl_ros.saved_policy import SavedPolicy, load_policy

__all__ = ['ExportError', 'Report', 'export_policy']

# Version of the operators, which onnxruntime 1.17 and later know.
_OPSET = 20


class ExportError(ValueError):
    """A policy that cannot be exported; the message is one line."""


class Report(NamedTuple):
    """What was exported: the policy, the size of its file in bytes, how it equals PyTorch."""

    saved: SavedPolicy
    size: int
    parity: Parity


def export_policy(checkpoint: Path, output: Path) -> Report:
    """
    Export the policy of a checkpoint; nothing is written if it does not equal PyTorch's.

    Args:
        checkpoint: the file of a run, or of ``save_policy``.
        output: the file to write, *.onnx.

    Raises:
        CheckpointError: not a readable checkpoint.
        EnvError: its environment cannot be made here.
        ExportError: the policy cannot be exported.
        OSError: the file cannot be written.
    """
    if output.suffix != '.onnx':
        raise ExportError(f'--output: {output} does not end in .onnx')
    saved = _load(checkpoint)
    envs: Any = factory.make(saved.env, seed=0, num_envs=4)
    try:
        space, columns = envs.single_observation_space, _columns(envs)
        try:
            data = _serialize(saved, space, columns)
            found = check_parity(saved, OnnxPolicy(data), envs)
        except (OnnxFileError, ExportError) as error:
            raise ExportError(f'{checkpoint}: cannot be exported: {error}') from None
    finally:
        envs.close()
    with atomic_file(output) as partial:
        partial.write_bytes(data)
    return Report(saved, len(data), found)


def _load(checkpoint: Path) -> SavedPolicy:
    described = load_checkpoint(checkpoint)['config'].get('environment')
    # Of a robot with the task reach: this host need not have its contract.
    is_reach = isinstance(described, dict) and described.get('task') == REACH
    return load_policy(checkpoint, env_id=REACH if is_reach else '')


def _columns(envs: Any) -> list[Column]:
    """Return the columns of the outermost environment that makes the vector of numbers."""
    while not hasattr(envs, 'observation_columns'):
        envs = envs.env
    columns: list[Column] = envs.observation_columns
    return columns


def _serialize(
    saved: SavedPolicy, space: gymnasium.spaces.Box, columns: list[Column],
) -> bytes:
    """
    Return the bytes of the file.

    Raises:
        ExportError: PyTorch or onnx cannot do it.
    """
    try:
        import onnx
    except ImportError:
        raise ExportError('onnx is not installed here: pip install onnx onnxruntime') from None
    inputs = [torch.zeros((2, *each['shape']), dtype=getattr(torch, each['dtype']))
              for each in inputs_of(space)]
    names = [each['name'] for each in inputs_of(space)]
    outputs = ['parameters', 'action', 'value']
    if saved.policy.state_size:
        inputs.append(torch.zeros(2, saved.policy.state_size))
        names.append('state')
        outputs.append('next_state')
    stream: Any = io.BytesIO()
    with warnings.catch_warnings():
        # Of the tracer, about shapes that do not change; and that there is another exporter.
        warnings.simplefilter('ignore')
        try:
            torch.onnx.export(
                PolicyGraph(saved.policy, saved.action_space), tuple(inputs), stream,
                input_names=names, output_names=outputs, opset_version=_OPSET, dynamo=False,
                dynamic_axes={name: {0: 'batch'} for name in (*names, *outputs)})
        except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
            reason = ' '.join(str(error).split())[:200]
            raise ExportError(f'network {saved.train.network}: {reason}') from None
    model = onnx.load_model_from_string(stream.getvalue())
    model.producer_name = 'vdl_ros'
    text = json.dumps(describe(saved, space, columns), allow_nan=False)
    onnx.helper.set_model_props(model, {KEY: text})
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data

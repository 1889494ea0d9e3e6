"""Runs the ONNX file of a policy with onnxruntime, without PyTorch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vdl_ros.onnx_policy import metadata
from vdl_ros.onnx_policy.file_check import OnnxFileError, check_graph

__all__ = ['ActionError', 'OnnxFileError', 'OnnxPolicy', 'Outputs', 'load_onnx_policy']

# Types of onnxruntime by names of NumPy.
_TYPES = {'float32': 'float', 'float64': 'double'}
_LARGEST = 1 << 30  # bytes


class ActionError(RuntimeError):
    """The outputs of a policy cannot be used; the message is one line."""


class Outputs(NamedTuple):
    """
    Outputs of a policy for B observations.

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
    """
    A policy as a function from observations [B, ...] to the most likely actions.

    Attributes:
        metadata: what the file says of itself.
    """

    def __init__(self, data: bytes) -> None:
        """
        Load the bytes of a file; one thread computes.

        Raises:
            OnnxFileError: they are not a policy of this program, or onnxruntime is missing.
        """
        check_graph(data)
        self._session = _open(data)
        properties = self._session.get_modelmeta().custom_metadata_map
        if metadata.KEY not in properties:
            raise OnnxFileError('not a file of export_policy: it does not describe a policy')
        self.metadata = found = metadata.parse(properties[metadata.KEY])
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
        """
        Return what the policy makes of observations, and keep its state.

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
        """
        Compare the inputs of the graph with the metadata.

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
        """
        Check outputs for B observations.

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
    """
    Return the policy of a file.

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
    """
    Return a session of onnxruntime.

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

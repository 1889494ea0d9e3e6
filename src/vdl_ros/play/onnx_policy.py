"""Policies in ONNX files of ``export_policy``, run by onnxruntime without PyTorch."""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.onnx_file import (
    OnnxFileError,
    load_onnx,
    onnx_inputs,
    open_onnx,
    reason_of,
)
from vdl_ros.play.plain_spaces import PlainSpace

FORMAT = 1
# Numbers of an observation or a state.
_MAX_NUMBERS = 1 << 26
# Types of onnxruntime by names of NumPy.
_TYPES = {'float32': 'float', 'float64': 'double'}


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
        self._session, self.metadata = open_onnx(data, PolicyMetadata, 'export_policy')
        found = self.metadata
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
            raise ActionError(reason_of(error)) from None
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
        have = onnx_inputs(self._session)
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
    return load_onnx(path, OnnxPolicy)

"""A second policy that brings a robot to the start of an episode."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.onnx_file import OnnxFileError
from vdl_ros.play.onnx_policy import ActionError
from vdl_ros.play.robot_policy import load_robot_onnx
from vdl_ros.robots.contract import Contract, ContractError, PolicyReset
from vdl_ros.robots.contract_files import read_contract
from vdl_ros.robots.episode import ResetError, Resetter
from vdl_ros.robots.observer import Observer
from vdl_ros.robots.task import Measured, make_task


class PolicyResetter(Resetter):
    """Acts by an ONNX policy until the task of its own contract succeeds.

    ContractError: the policy is not of that task, or its robot is another one.
    """

    acts = True

    def __init__(
        self, contract: Contract, reset: PolicyReset,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        folder, where = Path(contract.path).parent, f'{contract.name}.yaml: reset: policy'
        back = read_contract(folder / f'{reset.robot}.yaml')
        for name in ('rate', 'inputs', 'features', 'actions'):
            if getattr(back, name) != getattr(contract, name):
                raise ContractError(f'{where}: robot: {reset.robot!r} is not allowed: its {name} '
                                    'are not those of this contract')
        self._reset, self._clock, self._actions = reset, clock, contract.actions
        self._task = make_task(back)
        self._observer = Observer(back, self._task)
        try:
            self._policy = load_robot_onnx(folder / reset.file, back)
        except OnnxFileError as error:
            raise ContractError(f'{where}: file: {error}') from None
        self._random = np.random.default_rng()
        self._before: Measured | None = None
        self._is_back, self._deadline = False, 0.0

    def begin(self, random: np.random.Generator) -> None:
        self._random, self._before, self._is_back = random, None, False
        self._deadline = self._clock() + self._reset.timeout

    def act(self, measured: Measured) -> NDArray[np.float64]:
        task, is_first, reward = self._task, self._before is None, 0.0
        if self._before is None:
            task.begin(measured, self._random)
            self._observer.begin()
        else:
            # In the order that a task may rely on.
            reward = task.reward(self._before, measured)
            self._is_back = task.success(measured)
            task.failure(measured)
        self._before = measured
        observation: NDArray[Any] = self._observer.step(measured)
        try:
            chosen = self._policy(observation[None], np.array([is_first]), np.array([reward]))[0]
        except ActionError as error:
            raise ResetError(f'{self._reset.file}: {error}') from None
        return task.command(self._actions.values(chosen), measured)

    def is_done(self, values: dict[str, float]) -> bool:
        if not self._is_back and self._clock() > self._deadline:
            raise ResetError(f'{self._reset.file} has not brought it back within '
                             f'{self._reset.timeout:g} s')
        return self._is_back

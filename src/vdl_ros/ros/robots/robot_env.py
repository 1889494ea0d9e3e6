"""Robots as a vector environment in real time: ``robot/NAME``, by the contract of that name.

A thread with a node of its own runs the callbacks and the clock of all robots; it waits for no
agent. ``reset`` and ``step`` wait for its ticks only.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.stopped import EnvStopped
from vdl_ros.envs.checked_vector_env import EnvError
from vdl_ros.envs.env_config import ROBOT, EnvModulesConfig
from vdl_ros.robots.classifier import classifier_of
from vdl_ros.robots.contract import Actions, Contract
from vdl_ros.robots.contract_files import known_contracts, read_contract
from vdl_ros.robots.episode import Result
from vdl_ros.robots.observer import Observer
from vdl_ros.robots.task import Task, make_task, task_of
from vdl_ros.ros.robots.resetters import check_reset
from vdl_ros.ros.robots.robot_graph import Agent, RobotGraph
from vdl_ros.ros.robots.robot_topics import RobotInterfaces

_LOOK_S = 0.1  # time between two looks at whether the process has to end, s


class RobotVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """B robots of one contract, each with an episode of its own.

    ``info`` has, each [B]:

    * ``is_success``: the episode ended in success;
    * ``is_lost``: this step is none of an episode, because the robot or the agent was silent, or
      something else stopped it; the observation is the first of the next episode, or the last
      one again while the robot waits;
    * ``observation_age``, ``action_age``: age of the oldest measurement in the observation, and
      time from the observation before it to the action, s;
    * ``reaction_time``: float32 [B, 4], s, of this action: thinking, processing, action lag,
      observation lag;
    * ``late_actions``: ticks since the last step at which this action was not there;
    * with ``takeovers``, ``intervened``: a person commanded the robot instead, by
      ``executed_actions``, as :meth:`step` takes them.

    Continuous actions are -1 to 1, for ``low`` to ``high`` of the contract. Autoreset is
    NEXT_STEP. A step ends at the next tick at which a robot has something to say, so while no
    robot runs it waits for one; EnvStopped is raised once ``stop`` is set.

    Args:
        max_episode_steps: replaces ``episode_steps`` of the contract; 0: does not.
        takeovers: an episode goes on while a person commands the robot.
        follows: the robots act for a person's targets only.
        make: makes the task of each robot.
        agent: as of :class:`RobotGraph`.
    """

    metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP, 'render_modes': []}

    def __init__(
        self, num_envs: int, render_mode: str | None = None, max_episode_steps: int = 0, *,
        contract: Contract, namespace: str, stop: threading.Event, launch: str = '',
        takeovers: bool = False, follows: bool = False,
        make: Callable[[Contract], Task] = make_task, agent: Agent | None = None,
    ) -> None:
        if num_envs > contract.copies:
            raise EnvError(f'num_envs: {num_envs} is not allowed with {contract.env_id}: '
                           f'{contract.copies}, as many as its contract has copies')
        self.num_envs, self.render_mode = num_envs, render_mode
        if contract.observed_images:
            self.metadata = self.metadata | {
                'render_modes': ['rgb_array'], 'render_fps': contract.rate}
        self._contract, self._namespace, self._stop = contract, namespace, stop
        self._launch, self._takeovers, self._follows = launch, takeovers, follows
        self._max_steps, self._agent = max_episode_steps, agent
        self._interfaces = RobotInterfaces(contract)
        check_reset(contract)
        self._tasks = [make(contract) for _ in range(num_envs)]
        self._classifier = classifier_of(contract)
        self._observer = Observer(contract, self._tasks[0])
        self.single_observation_space = self._observer.space
        self.single_action_space = _action_space(contract.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._graph: RobotGraph | None = None
        self._observations: NDArray[Any] = np.zeros(
            (num_envs, *self._observer.space.shape), self._observer.space.dtype)
        self._returned = time.monotonic()

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode of every robot, as soon as all of them are there."""
        first = seed[0] if isinstance(seed, list) else seed
        super().reset(seed=first, options=options)
        if self._graph is None:
            self._graph = RobotGraph(
                self._contract, self._interfaces, self._tasks, self._namespace, self._stop,
                self._launch, self._max_steps, takeovers=self._takeovers, follows=self._follows,
                classifier=self._classifier, agent=self._agent)
        self._graph.restart(self.np_random.spawn(self.num_envs))
        missing = np.ones(self.num_envs, np.bool_)
        while missing.any():
            for robot, result in enumerate(self._wait()):
                if result is not None and result.is_first:
                    self._observations[robot], missing[robot] = result.observation, False
        self._returned = time.monotonic()
        return self._observations.copy(), {}

    def step(
        self, actions: NDArray[Any],
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Command all robots that run, and return what they show at their next tick."""
        assert self._graph is not None
        thinking = time.monotonic() - self._returned
        values = np.stack([self._contract.actions.values(each) for each in actions])
        if self._agent is not None and self._agent.rests:
            # No action of the space stands for it, if it is to stay.
            values[:] = self._contract.actions.neutral
        self._graph.act(values)
        results = self._wait()
        while not any(results):
            results = self._wait()
        count = self.num_envs
        self._returned = now = time.monotonic()
        rewards, ages = np.zeros(count), np.zeros((2, count))
        parts, late = np.zeros((count, 4), np.float32), np.zeros(count, np.int32)
        terminated, truncated, success = np.zeros((3, count), np.bool_)
        lost, intervened = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        executed = np.array(actions)
        for robot, result in enumerate(results):
            if result is None:
                continue
            self._observations[robot] = result.observation
            lost[robot], rewards[robot] = result.is_first, result.reward
            terminated[robot], truncated[robot] = result.terminated, result.truncated
            success[robot], late[robot] = result.success, result.late
            ages[:, robot] = result.observation_age, result.action_age
            parts[robot] = (thinking, max(0.0, now - result.arrived_wall),
                            self._graph.action_lag(robot), result.observation_lag)
            if result.executed is not None:
                intervened[robot] = True
                executed[robot] = result.executed.reshape(executed.shape[1:])
        return self._observations.copy(), rewards, terminated, truncated, {
            'is_success': success, 'is_lost': lost, 'observation_age': ages[0],
            'action_age': ages[1], 'reaction_time': parts, 'late_actions': late,
            **({'intervened': intervened, 'executed_actions': executed}
               if self._takeovers else {})}

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        """Return what each robot sees by its first image, uint8 [H, W, 3]."""
        return tuple(self._observer.shown(self._observations))

    def close_extras(self, **kwargs: Any) -> None:
        if self._graph is not None:
            self._graph.close()
            self._graph = None

    def _wait(self) -> list[Result | None]:
        assert self._graph is not None
        while not self._stop.is_set():
            results = self._graph.results(_LOOK_S)
            if results is not None:
                return results
        raise EnvStopped('the process ends')


def _action_space(actions: Actions) -> spaces.Space[Any]:
    if not actions.is_discrete:
        # Of a policy that knows nothing yet, the actions are about so large.
        return spaces.Box(-1.0, 1.0, (len(actions.parts),), np.float32)
    sizes = [len(part.levels) for part in actions.parts]
    return spaces.Discrete(sizes[0]) if len(sizes) == 1 else spaces.MultiDiscrete(sizes)


def register(
    config: EnvModulesConfig, namespace: str, stop: threading.Event, launch: str = '',
) -> None:
    """Register ``robot/NAME`` for each contract of this host: messages can only choose one.

    ``namespace`` is the one of their topics, ``launch`` as of :class:`RobotGraph`.
    """
    for path in known_contracts(config.robots).values():
        _register(path.stem, partial(read_contract, path), namespace, stop, launch)


def register_robot(
    contract: Contract, namespace: str, stop: threading.Event, launch: str = '',
    **more: Any,
) -> None:
    """Register the robot of one contract, as :func:`register` does.

    ``more`` are other arguments of :class:`RobotVectorEnv`.
    """
    _register(contract.name, lambda: contract, namespace, stop, launch, **more)


def _register(
    name: str, read: Callable[[], Contract], namespace: str, stop: threading.Event, launch: str,
    **more: Any,
) -> None:
    # A function: Gymnasium copies what it registers, and an event cannot be copied.
    def make(num_envs: int, **arguments: Any) -> RobotVectorEnv:
        return RobotVectorEnv(num_envs, contract=read(), namespace=namespace, stop=stop,
                              launch=launch, **more, **arguments)

    def describe() -> dict[str, Any]:
        contract = read()
        return task_of(contract).description(contract)

    creator: Any = make
    creator.checkpoint_description = describe
    gymnasium.registry.pop(f'{ROBOT}{name}', None)
    gymnasium.register(f'{ROBOT}{name}', vector_entry_point=creator)

"""Record the episodes of a policy in an environment, without ROS, as a LeRobot data set."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from vdl_ros.common.children import saving, telling
from vdl_ros.common.files import new_folder
from vdl_ros.envs import factory
from vdl_ros.envs.checked_vector_env import frame_rate
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.export.lerobot import Layout, LeRobotWriter, Row
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.actor import EnvStepper
from vdl_ros.rl.acting.evaluation import Progress, shares_of

#: An episode: observations, actions, rewards, and whether it was terminated; and what writes it.
_Episode = tuple[NDArray[Any], NDArray[Any], NDArray[Any], bool]
Write = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], bool], None]
_ENVIRONMENTS = 16
# Failures for each episode that is wanted, at most.
_PATIENCE = 50
# Where the environment does not say how fast it is.
_RATE = 30


def record_environment(
    act: Act, env: EnvConfig, episodes: int, output: Path, *, task: str, seed: int = 1,
    stop: threading.Event | None = None, tell: Callable[[str], None] = lambda line: None,
) -> tuple[int, int]:
    """Write episodes in which a policy succeeds; return how many, and how many did not.

    All count if the environment's info never has a success. The environments have equal shares, or
    short episodes would count more.

    Args:
        act: a policy of this environment, whose observations are numbers.
        output: a folder that does not exist yet.
        stop: ends it before all are written, when it is set.
        tell: takes a line of progress every 8 s, and of what counts.

    Raises:
        ValueError: an environment or a folder that cannot be used, or no success.
    """
    with telling('record_episodes: makes the environments'):
        envs = factory.make(env, seed, num_envs=min(_ENVIRONMENTS, episodes), same_step=True)
    space = envs.single_observation_space
    with contextlib.closing(envs):
        if space.dtype is None or space.dtype.kind != 'f' or len(space.shape or ()) != 1:
            raise ValueError(f'{env.env_id}: observations of the space {space} cannot be '
                             'recorded: numbers, without an image')
        rate = frame_rate(envs, _RATE)
        with contextlib.ExitStack() as data_set:
            write = data_set.enter_context(new_data_set(output, env.env_id, task, rate))
            waiting: list[tuple[int, _Episode]] = []

            def write_waiting() -> None:
                if waiting:
                    tell(f'{env.env_id}: tells of no success: all episodes count')
                while waiting:
                    write(*waiting.pop(0)[1])

            def keep() -> None:
                write_waiting()
                data_set.close()
                tell(f'{output}: has the episodes that were complete')

            with saving(keep):
                counts = _play(
                    envs, act, episodes, seed, write, waiting, stop or threading.Event(), tell)
                write_waiting()
                return counts


def _play(
    envs: VectorEnv, act: Act, episodes: int, seed: int, write: Write,
    waiting: list[tuple[int, _Episode]], stop: threading.Event, tell: Callable[[str], None],
) -> tuple[int, int]:
    """Write episodes with success; return how many had one, and how many none.

    While the environment has told of no success, episodes are added to ``waiting``, with the
    number of their environment: it may tell of it only in a step that succeeds.
    """
    failures, progress = 0, Progress(tell)
    shares = shares_of(episodes, envs.num_envs)
    rows: list[list[tuple[Any, ...]]] = [[] for _ in shares]
    stepper, rewards = EnvStepper(envs, seed), np.zeros(envs.num_envs)
    first, tells_success = factory.first_actions(envs), False
    while shares.any() and not stop.is_set():
        before, is_reset = stepper.observation.copy(), stepper.is_reset
        actions = act(before, is_reset, rewards)
        step = stepper.step(actions)
        rewards = step.reward
        if step.success is not None:
            tells_success = True
            # They ended without it.
            failures += len(waiting)
            for number, _ in waiting:
                shares[number] += 1
            waiting.clear()
        # Of all, as long as each may have to play again.
        for index in np.flatnonzero(shares if tells_success else np.ones_like(shares)):
            if step.ignored[index]:
                continue
            rows[index].append((before[index], np.ravel(actions[index]) + first, rewards[index]))
            if not (step.terminated[index] or step.truncated[index]):
                continue
            succeeds = step.success is not None and step.success[index]
            if succeeds or (not tells_success and shares[index]):
                seen, done, gained = (np.stack(each) for each in zip(*rows[index], strict=True))
                episode = seen, done, gained, bool(step.terminated[index])
                if tells_success:
                    write(*episode)
                else:
                    waiting.append((int(index), episode))
                shares[index] -= 1
            elif tells_success:
                failures += 1
                if failures >= _PATIENCE * episodes:
                    raise ValueError(f'the policy failed in {failures} episodes before it had '
                                     f'{episodes} with success')
            rows[index] = []
        count = episodes - int(shares.sum())
        progress.update(count + failures, f'{count} of {episodes} episodes are recorded, '
                        f'{failures} others had no success', max(map(len, rows)))
    return episodes - int(shares.sum()), failures


@contextlib.contextmanager
def new_data_set(output: Path, env_id: str, task: str, rate: float) -> Iterator[Write]:
    """Yield a function that writes an episode of an environment to a LeRobot data set.

    It takes the observations, [N, D], the actions, [N] or [N, A], as the environment counts them,
    and the rewards, [N]. The folder, which must not exist, is there when the block ends;
    ValueError: no episode was written.
    """
    with new_folder(output) as root:
        writer: LeRobotWriter | None = None

        def write(
            observations: NDArray[Any], actions: NDArray[Any], rewards: NDArray[Any],
            terminated: bool,
        ) -> None:
            nonlocal writer
            actions = actions.reshape(len(observations), -1)
            if writer is None:
                names, motors = (
                    tuple(f'{name}_{index}' for index in range(each.shape[1]))
                    for name, each in (('observation', observations), ('action', actions)))
                writer = LeRobotWriter(root, Layout(
                    joints=names, motors=motors, fps=max(1, round(rate)), tasks=(task,),
                    robot=env_id, rewards=True))
            writer.write(task, (
                Row(None, observation, action, reward=float(reward),
                    done=terminated and number == len(rewards) - 1)
                for number, (observation, action, reward) in enumerate(zip(
                    observations.astype(np.float32), actions.astype(np.float32), rewards,
                    strict=True))))

        yield write
        if writer is None:
            raise ValueError(f'{output}: there is no episode with success')
        writer.close()

"""Plays a policy in one environment and renders it, while the policy is being trained."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vdl_ros.common.opengl import OpenGLError, check_drawing
from vdl_ros.common.quoting import in_one_line, quoted
from vdl_ros.common.settings import select
from vdl_ros.envs.checked_vector_env import EnvError, frame_rate
from vdl_ros.envs.env_config import ROBOT, EnvConfig
from vdl_ros.envs.video import make_drawn, only_image
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.actor import EnvStepper
from vdl_ros.rl.policy.policy import load_weights, make_policy
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

# Added to the seed of the training, for other episodes than its own.
_SEED = 2000
# Longest side of an image; larger ones are thinned out.
_MAX_SIDE = 640


class PolicyPlayer:
    """One environment and a policy that acts in it, by its most likely actions.

    ``config`` are settings of a training, as a learner publishes them.

    Raises:
        EnvError: no such environment or image here, or it is not to be played a second time.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        env, train = select(EnvConfig, config), select(TrainConfig, config)
        if env.env_id.startswith(ROBOT):
            # A second program must not command it.
            raise EnvError(f'{quoted(env.env_id)} is a robot, which the actor moves')
        if train.inference == 'learner':
            raise EnvError('with inference:=learner the weights stay in the learner')
        without_opengl = ''
        try:
            check_drawing()
        except OpenGLError as error:
            # Not all environments need it. MuJoCo raises an error then, where a broken driver
            # would end the process.
            os.environ['MUJOCO_GL'], without_opengl = 'disable', str(error)
        try:
            self._env = make_drawn(env, train.seed + _SEED)
            self._policy = make_policy(
                train, self._env.single_observation_space, self._env.single_action_space,
                make_algorithm_config(train, config))
            self._stepper = EnvStepper(self._env, train.seed + _SEED)
            self._image()
            self.fps = frame_rate(self._env, 30.0)
        # Anybody's environment, and drivers behind it, may raise anything.
        except Exception as error:
            self.close()
            raise EnvError(without_opengl or in_one_line(error)) from error
        self._act = Act(self._policy, self._env.single_action_space, deterministic=True)
        self._rewards: NDArray[Any] = np.zeros(1)

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load the weights of a published policy.

        Raises:
            ValueError: weights of another network, or not finite.
        """
        load_weights(self._policy, arrays)

    def play(self, steps: int) -> NDArray[np.uint8]:
        """Make ``steps`` steps; return an image of the last, uint8 [H, W, 3].

        Raises:
            EnvError: the environment failed.
        """
        try:
            for _ in range(steps):
                stepper = self._stepper
                step = stepper.step(
                    self._act(stepper.observation, stepper.is_reset, self._rewards))
                self._rewards = step.reward
            return self._image()
        except Exception as error:
            raise EnvError(in_one_line(error)) from error

    def _image(self) -> NDArray[np.uint8]:
        image = only_image(self._env)
        stride = -(-max(image.shape[:2]) // _MAX_SIDE)
        return image[::stride, ::stride]

    def close(self) -> None:
        if hasattr(self, '_env'):
            self._env.close()

"""``vdl_ros/CarRacingPixels-v0``: Gymnasium's CarRacing with eight actions, as in rl-attack-vf."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, spaces
from numpy.typing import NDArray

__all__ = ['CarRacingPixelsEnv', 'Controls']

# Control (0 steering, 1 gas, 2 brake) and its new value, by action; the last action changes none.
_CHANGES = ((0, 1.0), (0, -1.0), (0, 0.0), (1, 1.0), (1, 0.0), (2, 1.0), (2, 0.0))


class Controls:
    """Steering, gas and brake, which stay as they are until an action changes one of them."""

    def __init__(self) -> None:
        """Release all."""
        self.values: NDArray[np.float32] = np.zeros(3, np.float32)

    def apply(self, action: int) -> NDArray[np.float32]:
        """
        Return the controls after an action, float32 [3].

        Args:
            action: 0, 1, 2: steer right, left, straight; 3, 4: gas on, off; 5, 6: brake on, off;
                7: nothing.
        """
        if action < len(_CHANGES):
            control, value = _CHANGES[action]
            self.values[control] = value
        return np.array(self.values)


class CarRacingPixelsEnv(Env[NDArray[np.uint8], np.int64]):
    """
    Drive a car by pictures, uint8 [96, 96, 3]; actions Discrete(8) of :class:`Controls`.

    It needs Box2D: ``pip install box2d``.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 50}

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        """
        Create the environment.

        Args:
            render_mode: 'rgb_array' or None.
            arguments: of Gymnasium's CarRacing.

        Raises:
            gymnasium.error.DependencyNotInstalled: Box2D is not installed.
        """
        from gymnasium.envs.box2d.car_racing import CarRacing

        self.render_mode = render_mode
        self._car: Any = CarRacing(render_mode=render_mode, **arguments)
        self._controls = Controls()
        self.observation_space: spaces.Space[Any] = self._car.observation_space
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(_CHANGES) + 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start on a new track with all controls released."""
        super().reset(seed=seed)
        self._controls = Controls()
        observation, info = self._car.reset(seed=seed, options=options)
        return observation, info

    def step(
        self, action: np.int64,
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Drive for 20 ms."""
        observation, reward, terminated, truncated, info = self._car.step(
            self._controls.apply(int(action)))
        return observation, float(reward), terminated, truncated, info

    def render(self) -> Any:
        """Return an image uint8 [400, 600, 3]."""
        return self._car.render()

    def close(self) -> None:
        """Free the simulation."""
        self._car.close()

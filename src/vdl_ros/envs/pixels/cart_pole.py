"""
``vdl_ros/CartPolePixels-v0`` and its variants: CartPole seen in pixels, as in rl-attack-vf.

An observation is the three frames of a step, grey, 42 x 42 pixels. They are drawn here, because
Gymnasium's drawing of 600 x 400 pixels takes longer than all else of a training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from numpy.typing import NDArray

from vdl_ros.envs.pixels.frames import MIDDLE, SIZE, bilinear, shrink

__all__ = ['REPEATS', 'CartPolePixelsEnv', 'draw']

#: Steps of CartPole for which an action is repeated.
REPEATS = 3

# Of Gymnasium's image: pixels per metre, its middle, and what it draws, in pixels from below.
_SCALE, _CENTRE = 125.0, 300.0
_CART, _CART_HALF_WIDTH = (85, 115), 25
_PIVOT, _POLE, _POLE_HALF_WIDTH = 107.5, (-5, 120), 5
_AXLE, _AXLE_RADIUS = 107, 5
# Means of red, green and blue.
_WHITE, _BLACK, _BROWN, _BLUE = 255.0, 0.0, 453 / 3, 464 / 3
# Its columns 100 to 500 shrunk to 80 x 80 are every fifth pixel, without interpolation.
_COLUMNS = 102.0 + 5 * np.arange(MIDDLE, dtype=np.float32)
_ROWS = 397.0 - 5 * np.arange(MIDDLE, dtype=np.float32)
# Rows of 80 with something in them.
_DRAWN = slice(32, 64)
_SHRINK = bilinear(MIDDLE, SIZE)


def draw(positions: NDArray[np.float32], angles: NDArray[np.float32]) -> NDArray[np.uint8]:
    """
    Draw carts and poles.

    Args:
        positions: [N], of the carts, m.
        angles: [N], of the poles from the vertical, rad.

    Returns:
        uint8 [N, 42, 42].
    """
    centres = (_CENTRE + _SCALE * positions)[:, None, None]
    across, up = _COLUMNS - centres, (_ROWS[_DRAWN] - _PIVOT)[:, None]
    sine, cosine = (function(angles)[:, None, None] for function in (np.sin, np.cos))
    frames = np.full((len(positions), MIDDLE, MIDDLE), _WHITE, np.float32)
    drawn = frames[:, _DRAWN]
    rows = _ROWS[_DRAWN, None]
    drawn[(np.abs(across) <= _CART_HALF_WIDTH) & (rows >= _CART[0]) & (rows <= _CART[1])] = _BLACK
    along = across * sine + up * cosine
    drawn[(np.abs(across * cosine - up * sine) <= _POLE_HALF_WIDTH)
          & (along >= _POLE[0]) & (along <= _POLE[1])] = _BROWN
    drawn[(_COLUMNS - np.trunc(centres))**2 + (rows - _AXLE)**2 <= _AXLE_RADIUS**2] = _BLUE
    return shrink(frames, _SHRINK)


class CartPolePixelsEnv(Env[NDArray[np.uint8], np.int64]):
    """
    CartPole in frames: observation uint8 [3, 42, 42], actions Discrete(2).

    A step is three of CartPole with one action, and its reward their sum. The observation is the
    frame of each; after a reset the first one three times; after the pole has fallen the last one
    again.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 17}

    def __init__(
        self, render_mode: str | None = None, gravity: float = 9.8, mass_cart: float = 1.0,
        mass_pole: float = 0.1,
    ) -> None:
        """
        Create the environment.

        Args:
            render_mode: 'rgb_array' or None.
            gravity: m/s^2.
            mass_cart: kg.
            mass_pole: kg.
        """
        self.render_mode = render_mode
        self.observation_space: spaces.Space[Any] = spaces.Box(
            0, 255, (REPEATS, SIZE, SIZE), np.uint8)
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)
        self._cart_pole: Any = CartPoleEnv(render_mode=render_mode)
        self._cart_pole.gravity = gravity
        self._cart_pole.masscart, self._cart_pole.masspole = mass_cart, mass_pole
        # CartPole computes these from the masses at its creation.
        self._cart_pole.total_mass = mass_cart + mass_pole
        self._cart_pole.polemass_length = mass_pole * self._cart_pole.length

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        state, info = self._cart_pole.reset(seed=seed, options=options)
        return draw(state[:1], state[2:3]).repeat(REPEATS, axis=0), info

    def step(
        self, action: np.int64,
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Push the cart left (0) or right (1) for three steps, or until the pole falls."""
        states: list[NDArray[np.float32]] = []
        total, terminated = 0.0, False
        while len(states) < REPEATS and not terminated:
            state, reward, terminated, _, _ = self._cart_pole.step(int(action))
            states.append(state)
            total += float(reward)
        positions, _, angles, _ = np.stack(states, axis=1)
        frames = draw(positions, angles)
        missing = REPEATS - len(frames)
        if missing:
            frames = np.concatenate([frames, frames[-1:].repeat(missing, axis=0)])
        return frames, total, terminated, False, {}

    def render(self) -> Any:
        """Return Gymnasium's image of the cart, uint8 [400, 600, 3]."""
        return self._cart_pole.render()

    def close(self) -> None:
        """Free what rendering uses."""
        self._cart_pole.close()

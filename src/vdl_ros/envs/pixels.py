"""CartPole and CarRacing in pixels; frames of CartPole are those of universe-starter-agent.

Its agents see 42 x 42 pixels: the image is shrunk to 80 x 80, then to 42 x 42, so that thin things
do not fall between two pixels.
"""

from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from numpy.typing import NDArray

from vdl_ros.envs.checked_vector_env import ResetResult, SingleStepResult

#: Height and width between the two steps, and of the result.
MIDDLE, SIZE = 80, 42


def bilinear(source: int, target: int) -> NDArray[np.float32]:
    """Return bilinear interpolation of one axis as a matrix, float32 [target, source].

    Pixel i of the target has its centre at (i + 1/2) source / target - 1/2 of the source.
    """
    centres = (np.arange(target) + 0.5) * source / target - 0.5
    distances = np.abs(centres.clip(0, source - 1)[:, None] - np.arange(source))
    weights: NDArray[np.float32] = np.maximum(1.0 - distances, 0.0).astype(np.float32)
    return weights


def shrink(frames: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return square frames [..., 80, 80], 0 to 255, shrunk by a matrix of :func:`bilinear`."""
    # Adding 1/2 and cutting off rounds to the nearest.
    shrunk: NDArray[np.uint8] = (rows @ frames @ rows.T + np.float32(0.5)).astype(np.uint8)
    return shrunk


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
    """Return images uint8 [N, 42, 42] of carts at positions, m, with poles at angles, rad."""
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
    """CartPole in frames: observation uint8 [3, 42, 42], actions Discrete(2).

    A step is three of CartPole with one action, and its reward their sum. The observation is the
    frame of each; after a reset the first one three times; after the pole has fallen the last one
    again.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 17}

    def __init__(
        self, render_mode: str | None = None, gravity: float = 9.8, mass_cart: float = 1.0,
        mass_pole: float = 0.1,
    ) -> None:
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

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        super().reset(seed=seed)
        state, info = self._cart_pole.reset(seed=seed, options=options)
        return draw(state[:1], state[2:3]).repeat(REPEATS, axis=0), info

    def step(self, action: np.int64) -> SingleStepResult:
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
        return self._cart_pole.render()

    def close(self) -> None:
        self._cart_pole.close()


# Control (0 steering, 1 gas, 2 brake) and its new value, by action; the last action changes none.
_CHANGES = ((0, 1.0), (0, -1.0), (0, 0.0), (1, 1.0), (1, 0.0), (2, 1.0), (2, 0.0))


class CarRacingPixelsEnv(Env[NDArray[np.uint8], np.int64]):
    """Drive a car by pictures, uint8 [96, 96, 3].

    Steering, gas and brake stay as they are until an action changes one of them. 0, 1, 2: steer
    right, left, straight; 3, 4: gas on, off; 5, 6: brake on, off; 7: nothing. It needs Box2D:
    ``pip install box2d``. ``arguments`` are those of Gymnasium's CarRacing.
    """

    metadata = {'render_modes': ['rgb_array'], 'render_fps': 50}

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        from gymnasium.envs.box2d.car_racing import CarRacing

        self.render_mode = render_mode
        self._car: Any = CarRacing(render_mode=render_mode, **arguments)
        self._controls = np.zeros(3, np.float32)
        self.observation_space: spaces.Space[Any] = self._car.observation_space
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(_CHANGES) + 1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> ResetResult:
        super().reset(seed=seed)
        self._controls = np.zeros(3, np.float32)
        return self._car.reset(seed=seed, options=options)  # type: ignore[no-any-return]

    def step(self, action: np.int64) -> SingleStepResult:
        if action < len(_CHANGES):
            control, value = _CHANGES[int(action)]
            self._controls[control] = value
        observation, reward, terminated, truncated, info = self._car.step(self._controls.copy())
        return observation, float(reward), terminated, truncated, info

    def render(self) -> Any:
        return self._car.render()

    def close(self) -> None:
        self._car.close()

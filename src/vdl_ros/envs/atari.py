"""Atari 2600 games with ale-py's vector environment and the preprocessing of Mnih et al. 2015.

* Observations are uint8 [B, S, 84, 84], grey, the oldest frame first. A frame is the maximum of
  the last two of ``frame_skip`` emulator frames, shrunk by area averaging. After a reset the stack
  is S - 1 black frames and the first one.
* An episode starts with one frame of FIRE if the game has that button, then a random number of
  idle frames: below ``noop_max`` in total. They do not count as steps or for the time limit.
* An episode is truncated after 108,000 emulator frames (30 minutes of play), or ``time_limit``
  steps. ``truncated`` is never set together with ``terminated``.

The step after a lost life presses FIRE if the game has that button, whatever its action: many
games do not go on without.

With ``episodic_life`` a lost life sets ``terminated`` and ``info['life_lost']``, but the game
continues, as in the wrappers of OpenAI Baselines: the step after it is the reset step, and the
stack continues without black frames. ale-py's own option would restart the game, so that agents
never reach a second life. Returns and lengths of episodes are those of whole games, without reset
steps.

The library is GPL-2.0 and optional, so it is imported only when a game is created.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from vdl_ros.common.quoting import quoted
from vdl_ros.common.settings import suggestion
from vdl_ros.envs.checked_vector_env import (
    EnvError,
    ResetResult,
    StepResult,
    VectorEnvironment,
    Wrapper,
)
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.pixels import MIDDLE, bilinear, shrink

MAX_FRAMES = 108_000
FRAMES_PER_SECOND = 60
RAW_SIZE = (210, 160)
# First and last row of the field of play.
_FIELD = slice(34, 194)


def make_atari(
    config: EnvConfig, num_envs: int, *, render: bool = False,
) -> VectorEnvironment:
    """Return ``num_envs`` copies of a game, stepped by one thread.

    With ``render``, the result's ``render()`` returns a colour image of each copy.
    """
    game = _game(config.env_id)
    of_universe = config.frame_processing == 'universe'
    frames = _vector(config, game, num_envs, colour=of_universe)
    if of_universe:
        frames = FieldFrames(frames, config.frame_stack, config.screen_size)
    env: VectorEnvironment = Lives(frames, config.episodic_life)
    if not render:
        return env
    colour = Lives(_vector(config, game, num_envs, colour=True), config.episodic_life)
    return RenderedGames(env, colour, FRAMES_PER_SECOND / config.frame_skip)


def _game(env_id: str) -> str:
    """Return ale-py's ROM name for a Gymnasium id."""
    try:
        import ale_py  # noqa: F401
    except ImportError:
        raise EnvError(
            f'env_id: {quoted(env_id)} needs ale-py: pip install ale-py, or make setup') from None
    import gymnasium

    known = [name for name in gymnasium.registry if name.startswith('ALE/')]
    if env_id not in known:
        raise EnvError(f'env_id: no Atari game {quoted(env_id)}{suggestion(env_id, known)}')
    return str(gymnasium.registry[env_id].kwargs['game'])


def _vector(
    config: EnvConfig, game: str, num_envs: int, colour: bool = False,
) -> VectorEnvironment:
    from ale_py.vector_env import AtariVectorEnv

    height, width = RAW_SIZE if colour else (config.screen_size, config.screen_size)
    env: VectorEnvironment = AtariVectorEnv(
        game,
        num_envs,
        num_threads=1,  # each actor process has its own core
        max_num_frames_per_episode=config.time_limit * config.frame_skip or MAX_FRAMES,
        repeat_action_probability=config.sticky_actions,
        full_action_space=config.full_action_space,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=height,
        img_width=width,
        grayscale=not colour,
        stack_num=1 if colour else config.frame_stack,
        frameskip=config.frame_skip,
        maxpool=config.frame_processing != 'universe',
        noop_max=config.noop_max,
        # The class Lives handles lost lives: this option would restart the game.
        episodic_life=False,
        reward_clipping=False,
    )
    return env


class FieldFrames(Wrapper):
    """Stacks of frames as of universe-starter-agent, uint8 [B, S, size, size], of colour games."""

    def __init__(self, env: VectorEnvironment, stack: int, size: int) -> None:
        super().__init__(env)
        self.single_observation_space = spaces.Box(0, 255, (stack, size, size), np.uint8)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._rows = bilinear(MIDDLE, size)
        self._stacks = np.zeros(self.observation_space.shape or (), np.uint8)
        self._done = np.zeros(self.num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> ResetResult:
        observations, info = self.env.reset(seed=seed, options=options)
        self._done = np.ones(self.num_envs, np.bool_)
        return self._stacked(observations), info

    def step(self, actions: NDArray[np.int64]) -> Any:
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        stacks = self._stacked(observations)
        self._done = terminated | truncated
        return stacks, rewards, terminated, truncated, info

    def _stacked(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the stacks after images uint8 [B, 1, 210, 160, 3]."""
        field = images[:, -1, _FIELD].reshape(self.num_envs, 160, -1).astype(np.uint16)
        # Of four pixels and three colours: bilinear interpolation to half the size is their mean.
        field = field[:, ::2] + field[:, 1::2]
        field = field[..., ::3] + field[..., 1::3] + field[..., 2::3]
        field = field[..., ::2] + field[..., 1::2]
        frames = shrink(field.astype(np.float32) * np.float32(1 / 12), self._rows)
        kept = np.where(self._done[:, None, None, None], np.uint8(0), self._stacks[:, 1:])
        self._stacks = np.concatenate([kept, frames[:, None]], axis=1)
        return self._stacks


class Lives(Wrapper):
    """Presses FIRE after each lost life; with ``episodic_life`` each ends an episode."""

    def __init__(self, env: VectorEnvironment, episodic_life: bool) -> None:
        super().__init__(env)
        self.episodic_life = episodic_life
        buttons = [action.name for action in env.unwrapped.ale.get_action_set()]  # type: ignore[attr-defined]
        self._fire = buttons.index('FIRE') if 'FIRE' in buttons else None
        self._lives = np.zeros(self.num_envs, np.int32)
        # Where the next step follows a lost life, and where it only begins the next episode.
        self._life_lost = self._resets = np.zeros(self.num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> ResetResult:
        observations, info = self.env.reset(
            seed=None if seed is None else np.array(seed), options=options)  # type: ignore[arg-type]
        self._lives = info['lives']
        self._life_lost = self._resets = np.zeros(self.num_envs, np.bool_)
        return observations, info

    def step(self, actions: NDArray[np.int64]) -> StepResult:
        resets = self._resets
        actions = np.where(
            resets if self._fire is None else self._life_lost, self._fire or 0, actions)
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        self._life_lost = (info['lives'] < self._lives) & ~(terminated | truncated)
        self._lives = info['lives']
        if self.episodic_life:
            rewards = np.where(resets, 0, rewards)
            # A life that is lost in the reset step is no episode.
            self._resets = info['life_lost'] = self._life_lost & ~resets
            terminated = terminated | self._resets
        return observations, rewards, terminated, truncated, info


class RenderedGames(Wrapper):
    """Games with ``render()``.

    ale-py's vector environment cannot render, and colour images shrunk by another library would
    differ from the observations of training. So a second copy with the same seeds, in colour and
    full size, takes the same actions; emulators are deterministic.
    """

    def __init__(self, env: VectorEnvironment, colour: VectorEnvironment, fps: float) -> None:
        super().__init__(env)
        self.colour = colour
        self.metadata = {**env.metadata, 'render_modes': ['rgb_array'], 'render_fps': fps}
        self._images: NDArray[np.uint8] | None = None

    @property
    def render_mode(self) -> str:  # type: ignore[override]
        return 'rgb_array'

    def reset(self, *, seed: Any = None, options: Any = None) -> ResetResult:
        self._images = self.colour.reset(seed=seed, options=options)[0]
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: NDArray[np.int64]) -> Any:
        images, *theirs, _ = self.colour.step(actions)
        result = self.env.step(actions)
        if not all(np.array_equal(a, b) for a, b in zip(theirs, result[1:4], strict=True)):
            raise RuntimeError('the colour copy of the game differs from the one that is played')
        self._images = images
        return result

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        return None if self._images is None else tuple(self._images[:, -1])

    def close(self, **kwargs: Any) -> None:
        self.colour.close(**kwargs)
        self.env.close(**kwargs)

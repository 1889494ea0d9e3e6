"""
Atari 2600 games by ale-py's vector environment, with the preprocessing of Mnih et al. 2015.

What holds for ale-py 0.12 (https://ale.farama.org/vector-environment), read in its source and
checked by the tests:

* Observations are uint8 [B, S, 84, 84], grey, the oldest picture first. A picture is the maximum
  of the last two of the ``frame_skip`` emulator frames, shrunk by area averaging.
* After a reset, also an automatic one, the stack is S - 1 black pictures and the first one of the
  episode; in between, each observation is the one before moved by one picture.
* Every step returns new arrays; nothing needs to be copied. Actions are int64 [B].
* An episode starts with one frame of FIRE where the game has that button, then a random number of
  idle frames: below ``noop_max`` in all. They count neither as steps nor for the time limit.
* An episode is truncated after 108,000 emulator frames (30 minutes of play), or ``time_limit``
  steps. ``truncated`` is never set together with ``terminated``.
* Rewards are the game's score, not clipped: clipping belongs to the learner, and the raw return is
  what papers report.

With ``episodic_life`` a lost life sets ``terminated``, but the game goes on, as in the wrappers of
OpenAI Baselines: the NEXT_STEP reset step presses FIRE (or nothing) for one step, and the stack
goes on without black pictures. ale-py's own option would instead restart the game, and no learner
would ever see a second life. ``info['game_over']`` bool [B] is true when the game itself ended, so
a raw return is the sum of rewards up to ``game_over``, through all lives, less what was scored in
the reset steps, one per life: nobody acted in them. For published scores evaluate without it.

The library is GPL-2.0 and optional, so it is imported only when a game is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vdl_ros.common.settings import suggestion
from vdl_ros.envs.checked_vector_env import EnvError, VectorEnvironment, Wrapper
from vdl_ros.envs.env_config import EnvConfig

__all__ = ['FRAMES_PER_SECOND', 'MAX_FRAMES', 'RAW_SIZE', 'Lives', 'Pictures', 'make_atari']

MAX_FRAMES = 108_000
FRAMES_PER_SECOND = 60
RAW_SIZE = (210, 160)


def make_atari(
    config: EnvConfig, num_envs: int, *, render: bool = False, num_threads: int = 1,
) -> VectorEnvironment:
    """
    Return ``num_envs`` copies of the game ``config.env_id``, stepped by ``num_threads`` threads.

    One thread by default, as each actor process has a core of its own. With ``render``, the
    result's ``render()`` gives the colour picture of each copy.

    Raises:
        EnvError: no such game, or ale-py is not installed.
    """
    game = _game(config.env_id)
    env: VectorEnvironment = Lives(
        _vector(config, game, num_envs, num_threads), config.episodic_life)
    if not render:
        return env
    colour = Lives(
        _vector(config, game, num_envs, num_threads, colour=True), config.episodic_life)
    return Pictures(env, colour, FRAMES_PER_SECOND / config.frame_skip)


def _game(env_id: str) -> str:
    """Return ale-py's name of the ROM behind a Gymnasium id."""
    try:
        import ale_py  # noqa: F401
    except ImportError:
        raise EnvError(
            f'env_id: {env_id} needs ale-py: pip install ale-py, or make setup') from None
    import gymnasium

    known = [name for name in gymnasium.registry if name.startswith('ALE/')]
    if env_id not in known:
        raise EnvError(f'env_id: no Atari game {env_id!r}{suggestion(env_id, known)}')
    return str(gymnasium.registry[env_id].kwargs['game'])


def _vector(
    config: EnvConfig, game: str, num_envs: int, num_threads: int, colour: bool = False,
) -> VectorEnvironment:
    from ale_py.vector_env import AtariVectorEnv

    height, width = RAW_SIZE if colour else (config.screen_size, config.screen_size)
    env: VectorEnvironment = AtariVectorEnv(
        game,
        num_envs,
        num_threads=num_threads,
        max_num_frames_per_episode=config.time_limit * config.frame_skip or MAX_FRAMES,
        repeat_action_probability=config.sticky_actions,
        full_action_space=config.full_action_space,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=height,
        img_width=width,
        grayscale=not colour,
        stack_num=1 if colour else config.frame_stack,
        frameskip=config.frame_skip,
        noop_max=config.noop_max,
        # A lost life is seen in Lives: this option would restart the whole game.
        episodic_life=False,
        reward_clipping=False,
    )
    return env


class Lives(Wrapper):
    """
    Adds ``info['game_over']`` and, with ``episodic_life``, ends an episode with each lost life.

    Without ``episodic_life`` a game ends only when all lives are lost, and ``game_over`` is
    ``terminated | truncated``.
    """

    def __init__(self, env: VectorEnvironment, episodic_life: bool) -> None:
        """Wrap an AtariVectorEnv."""
        super().__init__(env)
        self.episodic_life = episodic_life
        # Without FIRE many games do not go on after a lost life, and the policy need not know.
        buttons = [action.name for action in env.unwrapped.ale.get_action_set()]  # type: ignore[attr-defined]
        self._restart = buttons.index('FIRE') if 'FIRE' in buttons else 0
        self._lives = np.zeros(self.num_envs, np.int32)
        self._life_lost = np.zeros(self.num_envs, np.bool_)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start new games; ``seed`` is a list of one seed per game."""
        observations, info = self.env.reset(
            seed=None if seed is None else np.array(seed), options=options)  # type: ignore[arg-type]
        self._lives = info['lives']
        self._life_lost = np.zeros(self.num_envs, np.bool_)
        info['game_over'] = np.zeros(self.num_envs, np.bool_)
        return observations, info

    def step(
        self, actions: NDArray[np.int64],
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_],
               dict[str, Any]]:
        """Step the games; actions are indices int64 [B]."""
        if self._life_lost.any():
            actions = np.where(self._life_lost, self._restart, actions)
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        info['game_over'] = terminated | truncated
        if self.episodic_life:
            rewards = np.where(self._life_lost, 0, rewards)
            self._life_lost = (info['lives'] < self._lives) & ~info['game_over']
            self._lives = info['lives']
            terminated = terminated | self._life_lost
        return observations, rewards, terminated, truncated, info


class Pictures(Wrapper):
    """
    Games that can also be looked at.

    ale-py's vector environment has no ``render``, and shrinking its colour picture by another
    library would not give the observations that the policy was trained on. So a second copy with
    the same seeds, in colour and full size, takes the same actions; emulators are deterministic.
    """

    def __init__(self, env: VectorEnvironment, colour: VectorEnvironment, fps: float) -> None:
        """Wrap ``env``; ``colour`` is its double, ``fps`` the steps per second of real play."""
        super().__init__(env)
        self.colour = colour
        self.metadata = {**env.metadata, 'render_modes': ['rgb_array'], 'render_fps': fps}
        self._pictures: NDArray[np.uint8] | None = None

    @property
    def render_mode(self) -> str:  # type: ignore[override]
        """Return the only mode there is."""
        return 'rgb_array'

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start new games in both copies."""
        self._pictures = self.colour.reset(seed=seed, options=options)[0]
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: NDArray[np.int64]) -> Any:
        """
        Step both copies.

        Raises:
            RuntimeError: they no longer play the same game.
        """
        pictures, *theirs, _ = self.colour.step(actions)
        result = self.env.step(actions)
        if not all(np.array_equal(a, b) for a, b in zip(theirs, result[1:4], strict=True)):
            raise RuntimeError('the colour copy of the game differs from the one that is played')
        self._pictures = pictures
        return result

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return the picture uint8 [210, 160, 3] of each game."""
        return None if self._pictures is None else tuple(self._pictures[:, -1])

    def close(self, **kwargs: Any) -> None:
        """Close both copies."""
        self.colour.close(**kwargs)
        self.env.close(**kwargs)

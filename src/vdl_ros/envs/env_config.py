"""Settings of the environments."""

from __future__ import annotations

import dataclasses

from vdl_ros.common.settings import setting

__all__ = ['EnvConfig']


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """
    Settings of the environments of one actor, from which ``envs/factory.py`` creates them.

    The defaults of the Atari settings are
    the protocol of Mnih et al. 2015 (https://doi.org/10.1038/nature14236); for the one of Machado
    et al. 2018 (https://arxiv.org/abs/1709.06009) set ``sticky_actions`` to 0.25 and
    ``full_action_space`` to true.
    """

    env_id: str = setting(
        'CartPole-v1', 'Gymnasium id of the environment, such as CartPole-v1 or ALE/Pong-v5; or '
        'dummy/OBS28224-FPS100-v0: observations of 28224 bytes, 100 steps per second. Without '
        'env_id, algorithm or resume, train.launch.py trains vdl_ros/OWI535Reach-v0 with ppo.')
    env_kwargs: str = setting(
        '', 'Arguments of the environment, a JSON object such as {"size": 5}; not of ALE/ '
        'and dummy/ environments.')
    env_wrappers: str = setting(
        '', 'Wrappers of the environment, innermost first: names separated by commas, or a JSON '
        'list of names and of {name: arguments}. Names are those of docs/environments.md and of '
        'wrappers in env_modules.')
    num_envs: int = setting(
        16, 'Number of copies of the environment that one actor steps together; of a world of '
        'several bodies, the number of worlds.',
        minimum=1, maximum=4096, unit='environments')
    bodies: str = setting(
        '', 'PettingZoo worlds only: bodies that the policy acts for, by names and patterns such '
        'as adversary_*, separated by commas; empty: all. The others act at random, or for '
        'another agent.')
    time_limit: int = setting(
        0, "Steps after which an episode is truncated; 0: the environment's own limit.",
        minimum=0, maximum=1_000_000_000, unit='steps')
    realtime_fps: float = setting(
        0.0, 'Steps per second of an environment that does not wait for its agent: it runs on its '
        'own clock, and without a new action it holds the last one; 0: it waits.',
        minimum=0.0, maximum=1000.0, unit='1/s')
    observation_delay: float = setting(
        0.0, 'How much later observations are shown, in the time of the environment.',
        minimum=0.0, maximum=10.0, unit='s')
    random_observation_delay: float = setting(
        0.0, 'Largest delay beside observation_delay, drawn for each episode.',
        minimum=0.0, maximum=10.0, unit='s')
    action_delay: float = setting(
        0.0, 'How much later actions are applied, in the time of the environment.',
        minimum=0.0, maximum=10.0, unit='s')
    random_action_delay: float = setting(
        0.0, 'Largest delay beside action_delay, drawn for each episode.',
        minimum=0.0, maximum=10.0, unit='s')
    observe_last_actions: int = setting(
        0, 'Number of last actions that are added to an observation.',
        minimum=0, maximum=1000, unit='actions')
    frame_skip: int = setting(
        4, 'Atari only: emulator frames for which an action is repeated.',
        minimum=1, maximum=100, unit='frames')
    frame_stack: int = setting(
        4, 'Atari only: number of latest frames in an observation.',
        minimum=1, maximum=64, unit='frames')
    screen_size: int = setting(
        84, 'Atari only: height and width of the grey frames.',
        minimum=8, maximum=210, unit='pixels')
    frame_processing: str = setting(
        'mnih', 'Atari only: grey frames of the whole screen as of Mnih et al. 2015, or of the '
        'field of play as of universe-starter-agent.', choices=('mnih', 'universe'))
    noop_max: int = setting(
        30, 'Atari only: an episode starts with a random number of idle frames below this '
        'number.', minimum=0, maximum=1000, unit='frames')
    sticky_actions: float = setting(
        0.0, 'Atari only: probability that the emulator repeats the previous action instead of '
        'the chosen one.', minimum=0.0, maximum=1.0)
    episodic_life: bool = setting(
        False, 'Atari only: every lost life ends an episode for the learner.')
    full_action_space: bool = setting(
        False, 'Atari only: all 18 joystick actions instead of those that the game uses.')

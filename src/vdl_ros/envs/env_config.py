"""Settings of the environments, Atari's included: they travel together."""

import dataclasses
from dataclasses import dataclass

from vdl_ros.common.settings import setting

#: Begin of the ids of robots, which nodes register (``ros/robots/robot_env.py``).
ROBOT = 'robot/'


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """Settings of the environments of one actor, from which ``envs/factory.py`` creates them.

    The defaults of the Atari settings are the protocol of Mnih et al. 2015
    (https://doi.org/10.1038/nature14236); for the one of Machado et al. 2018
    (https://arxiv.org/abs/1709.06009) set ``sticky_actions`` to 0.25 and ``full_action_space`` to
    true.
    """

    env_id: str = setting(
        'CartPole-v1', 'Gymnasium id, such as CartPole-v1 or ALE/Pong-v5; or '
        'dummy/OBS28224-FPS100-v0: 28224 bytes, 100 steps per second. Without env_id, algorithm '
        'and resume train.launch.py trains vdl_ros/OWI535Reach-v0 with ppo.')
    env_kwargs: str = setting(
        '', 'Arguments of the environment, a JSON object such as {"size": 5}; not for ALE/ and '
        'dummy/.')
    env_wrappers: str = setting(
        '', 'Wrappers, innermost first: names separated by commas, or a JSON list of names and '
        '{name: arguments}. docs/environments.md lists them.')
    num_envs: int = setting(
        16, 'Environments that one actor steps together; of several bodies, worlds.', minimum=1,
        maximum=4096, unit='environments')
    bodies: str = setting(
        '', 'PettingZoo only: bodies of this policy, names and patterns separated by commas, '
        'such as adversary_*; empty: all.')
    time_limit: int = setting(
        0, "An episode is truncated after this; 0: the environment's own limit.", minimum=0,
        maximum=1_000_000_000, unit='steps')
    realtime_fps: float = setting(
        0.0, 'Rate of an environment on its own clock, which holds the last action; 0: it waits '
        'for actions.', minimum=0.0, maximum=1000.0, unit='1/s')
    observation_delay: float = setting(
        0.0, 'Delay of observations, in the time of the environment.', minimum=0.0, maximum=10.0,
        unit='s')
    random_observation_delay: float = setting(
        0.0, 'Largest delay beside observation_delay, for each episode.', minimum=0.0,
        maximum=10.0, unit='s')
    action_delay: float = setting(
        0.0, 'Delay of actions, in the time of the environment.', minimum=0.0, maximum=10.0,
        unit='s')
    random_action_delay: float = setting(
        0.0, 'Largest delay beside action_delay, for each episode.', minimum=0.0, maximum=10.0,
        unit='s')
    observe_last_actions: int = setting(
        0, 'Last actions added to an observation.', minimum=0, maximum=1000, unit='actions')
    frame_skip: int = setting(
        4, 'Atari only: frames for which an action is repeated.', minimum=1, maximum=100,
        unit='frames')
    frame_stack: int = setting(
        4, 'Atari only: newest frames in an observation.', minimum=1, maximum=64, unit='frames')
    screen_size: int = setting(
        84, 'Atari only: height and width of the grey frames.', minimum=8, maximum=210,
        unit='pixels')
    frame_processing: str = setting(
        'mnih', 'Atari only: the whole screen (Mnih et al. 2015), or the field of play '
        '(universe-starter-agent).', choices=('mnih', 'universe'))
    noop_max: int = setting(
        30, 'Atari only: an episode starts with fewer idle frames than this.', minimum=0,
        maximum=1000, unit='frames')
    sticky_actions: float = setting(
        0.0, 'Atari only: probability that the previous action is repeated.', minimum=0.0,
        maximum=1.0)
    episodic_life: bool = setting(
        False, 'Atari only: a lost life ends an episode for the learner; returns and lengths '
        'are those of whole games.')
    full_action_space: bool = setting(
        False, 'Atari only: all 18 actions, not only those of the game.')

    @property
    def in_real_time(self) -> bool:
        """Whether it is on its own clock, and waits for no action."""
        return self.realtime_fps > 0 or self.env_id.startswith(ROBOT)


@dataclass(frozen=True)
class EnvModulesConfig:
    """Settings of the environments that each process has for itself; they never travel."""

    env_modules: str = setting(
        '', 'Python modules with environments and wrappers, separated by commas, which this '
        'process imports. The learner cannot name any.')
    robots: str = setting(
        '', 'Folder with further contracts, NAME.yaml for env_id:=robot/NAME. They name Python '
        'functions: use files that you trust.')

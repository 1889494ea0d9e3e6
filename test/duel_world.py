"""A small world for tests, of PettingZoo's parallel API, in which bodies go at different times."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from vdl_ros.envs.worlds import register_world

DUEL = 'test/duel'
#: Steps after which a body is gone; the world ends with the last one.
LIVES = {'red_0': 3, 'red_1': 5, 'blue_0': 5}


class DuelEnv(ParallelEnv):
    """Three bodies that see the step, counted over all episodes, and get their action as reward.

    A red one observes [step, seed modulo 1000], a blue one [step, seed modulo 1000, 7].
    """

    metadata = {'name': 'duel', 'render_fps': 10}

    def __init__(self, render_mode=None, lives=None):
        self.render_mode = render_mode
        self.lives = lives or LIVES
        self.possible_agents = list(self.lives)
        self.agents = []
        self.steps = self.time = self.identity = 0

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (2 if 'red' in agent else 3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(4)

    def _observations(self):
        return {name: np.array([self.steps, self.identity, 7][:2 if 'red' in name else 3],
                               np.float32) for name in self.agents}

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.identity, self.steps = seed % 1000, 0
        self.agents, self.time = list(self.possible_agents), 0
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions):
        assert actions.keys() == set(self.agents)
        self.steps += 1
        self.time += 1
        observations = self._observations()
        gone = {name: self.time >= self.lives[name] for name in self.agents}
        rewards = {name: float(actions[name]) for name in self.agents}
        self.agents = [name for name in self.agents if not gone[name]]
        return observations, rewards, gone, dict.fromkeys(gone, False), {name: {} for name in gone}

    def close(self):
        pass


register_world(DUEL, DuelEnv)

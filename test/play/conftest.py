"""Fixtures: checkpoints with random weights, and their exports."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.play.onnx_export import export_policy
from vdl_ros.rl.acting.actor import EnvStepper
from vdl_ros.rl.learning.learner import Learner
from vdl_ros.rl.runs.checkpoint import save_checkpoint
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config


class Images(gymnasium.Env):
    """Random images, [C, H, W] or [H, W, C] beside numbers, large enough for every network."""

    def __init__(self, mixed=False):
        image = gymnasium.spaces.Box(0, 255, (36, 40, 3) if mixed else (3, 40, 36), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({
            'image': image, 'speed': gymnasium.spaces.Box(-2, 2, (2,), np.float32),
            'gear': gymnasium.spaces.Discrete(3)}) if mixed else image
        self.action_space = gymnasium.spaces.MultiDiscrete([3, 2], start=[4, -1]) if mixed \
            else gymnasium.spaces.Discrete(4, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(np.max(action)), False, False, {}


gymnasium.register('test/Images-v0', Images)
gymnasium.register('test/MixedImages-v0', Images, kwargs={'mixed': True})


@pytest.fixture(scope='session')
def checkpoint(tmp_path_factory):
    """Return a function that writes a checkpoint whose weights are all random."""
    def write(env_id, env=None, config=None, options=None, **train):
        torch.manual_seed(0)
        env = EnvConfig(env_id=env_id, num_envs=1, **(env or {}))
        train = dataclasses.replace(TrainConfig(algorithm='ppo', hidden_size=8), **train)
        algorithm_config = make_algorithm_config(train, options or {})
        spaces = factory.spaces(env)
        learner = Learner(train, *spaces, algorithm_config=algorithm_config)
        learner.agent_steps = 99
        with torch.no_grad():
            # The heads of a new policy are almost zero.
            for parameter in learner.policy.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
        if learner.policy.normalizer is not None:
            learner.policy.normalizer.update(
                3.0 + 2.0 * torch.randn(50, *learner.policy.normalizer.mean.shape))
        path = tmp_path_factory.mktemp('run') / 'checkpoint.pt'
        save_checkpoint(
            path, learner=learner.state(), progress={},
            config=as_dict(env, train, algorithm_config) | factory.describe(env) | (config or {}))
        return path
    return write


@pytest.fixture(scope='session')
def exported(checkpoint):
    """Return a function that exports a policy; it returns checkpoint and file."""
    def export(*args, **train):
        path = checkpoint(*args, **train)
        output = path.with_name('policy.onnx')
        export_policy(path, output)
        return path, output
    return export


@pytest.fixture
def played():
    """Return a function that yields observations, resets and rewards of random episodes."""
    def play(saved, copies=3, steps=40):
        envs = factory.make(saved.env, seed=5, num_envs=copies)
        envs.action_space.seed(5)
        stepper, rewards = EnvStepper(envs, seed=5), np.zeros(copies, np.float32)
        random = np.random.default_rng(5)
        for _ in range(steps):
            # Episodes that end now and then, whatever the environment is.
            resets = stepper.is_reset | (random.random(copies) < 0.1)
            yield stepper.observation, resets, rewards
            rewards = stepper.step(envs.action_space.sample()).reward
        envs.close()
    return play

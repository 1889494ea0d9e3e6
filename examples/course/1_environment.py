"""Lesson 1: the arm as a Gymnasium environment, without ROS.

    python3 1_environment.py

Prints what a policy observes and commands, and plays an episode with random motors.
Try: let only the base move, and see which of the observed numbers change.
"""

import gymnasium

from vdl_ros.envs.owi535.reach import FEATURES

# The module before the colon registers the environment.
env = gymnasium.make('vdl_ros.envs:vdl_ros/OWI535Reach-v0')
print('actions:', env.action_space, '(each motor: 0 backward, 1 off, 2 forward)')
print('observation:', ', '.join(feature.name for feature in FEATURES))

env.action_space.seed(1)
observation, info = env.reset(seed=1)
total, steps, over = 0.0, 0, False
while not over:
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    total, steps, over = total + float(reward), steps + 1, terminated or truncated
print(f'random motors: return {total:.1f} after {steps} steps, success: {info["is_success"]}')

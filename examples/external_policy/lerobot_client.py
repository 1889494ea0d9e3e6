"""A policy that LeRobot trained, for ``play.launch.py policy:=external``.

    python lerobot_client.py --policy outputs/.../pretrained_model --dataset data/place

in an environment with LeRobot (0.6, Python 3.12 or newer) and rclpy. The data set, of
``export_dataset``, says which numbers are the state and the action. Each answer is a whole chunk.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from client import serve
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.utils import prepare_observation_for_inference


def load(path, dataset, task):
    """Return the policy as a function for :func:`serve`, and the images that it needs."""
    config = PreTrainedConfig.from_pretrained(path)
    policy = get_policy_class(config.type).from_pretrained(path, config=config).eval()
    before, after = make_pre_post_processors(config, path)
    features = json.loads((dataset / 'meta' / 'info.json').read_text())['features']
    states, names = (features[each]['names'] for each in ('observation.state', 'action'))
    seen = [name.removeprefix('observation.images.') for name in config.image_features]
    device = torch.device(config.device)

    def act(told, images):
        observation = {'observation.state': np.array(
            [told['state'][name] or 0.0 for name in states], np.float32)}
        for name in seen:
            observation[f'observation.images.{name}'] = images[name].copy()
        with torch.inference_mode():
            batch = before(prepare_observation_for_inference(observation, device, task))
            return after(policy.predict_action_chunk(batch))[0].numpy(force=True), names

    return act, seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--policy', type=Path, required=True)
    parser.add_argument('--dataset', type=Path, required=True)
    parser.add_argument('--task', default='', help='what a policy with language is told')
    parser.add_argument('--rows', type=int, help='send so many of a chunk, to measure')
    parser.add_argument('--delay', type=float, default=0.0, help='wait so long, s, to measure')
    options = parser.parse_args()
    torch.set_num_threads(1)
    act, seen = load(options.policy, options.dataset, options.task)

    def act_late(told, images):
        actions, names = act(told, images)
        time.sleep(options.delay)
        return actions[:options.rows], names

    serve(act_late, seen)


if __name__ == '__main__':
    main()

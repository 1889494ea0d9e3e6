"""The tutorial of an own environment, as a reader copies it; an actor without the module waits."""

import json
import os
import re
from pathlib import Path

import pytest

from vdl_ros.common.settings import as_dict
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros import qos

pytestmark = pytest.mark.timeout(1800)
PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'tutorials' / 'your_environment.md'
REFUSED = ("policy refused, waiting for another: env_id: no environment 'tutorial/Walk-v0' on "
           'this host; the module that registers it is named by env_modules:=MODULE with ros2 ')


def with_folder(path):
    """Return an environment in which Python imports from a folder."""
    return os.environ | {
        'PYTHONPATH': f'{path}{os.pathsep}{os.environ.get("PYTHONPATH", "")}'}


def test_the_commands_of_the_tutorial_train_evaluate_and_go_on(
        launch, tmp_path, monkeypatch, stranger):
    text = PAGE.read_text()
    module, = re.findall(r'^```python\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    commands = re.findall(r'^```bash\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    assert len(commands) == 3
    (tmp_path / 'walk.py').write_text(module)
    monkeypatch.chdir(tmp_path)
    # As on a host whose user has not named the module.
    (tmp_path / 'canary.py').write_text("open('imported', 'w').close()\n")
    waiting = launch('ros2', 'run', 'vdl_ros', 'actor', env=with_folder(tmp_path))
    waiting.wait_for(lambda: 'waiting for a policy' in waiting.output, 'the actor')
    reader = launch('bash', '-e', '-c', '\n'.join(commands))
    assert reader.wait(1500.0) == 0, reader.output

    summary = json.loads((tmp_path / 'runs/walk/summary.json').read_text())
    assert summary['ended_by'] == 'stop_at_return'
    assert summary['success_rate_100'] > 0.9
    assert (tmp_path / 'runs/walk/curve.png').stat().st_size > 10_000
    # The most likely actions may go in circles for some goals.
    success, = re.findall(r'100 episodes: mean .* success (\d+)%', reader.output)
    assert int(success) > 60
    assert (tmp_path / 'walk.mp4').stat().st_size > 1000
    slippery = json.loads((tmp_path / 'runs/slippery/summary.json').read_text())
    assert slippery['ended_by'] == 'stop_at_return'
    # With other weights it needs more than the first run, for the ground is slippery.
    assert slippery['agent_steps'] < summary['agent_steps']

    # The actor may have missed trainings of seconds. Now the learners are gone, and a stranger
    # names this environment, then modules that this host could import.
    assert REFUSED in text
    publisher = stranger.create_publisher(Policy, 'policy', qos.TOPICS['policy'])
    for env_id, wrappers, answer in (
            ('tutorial/Walk-v0', '', REFUSED),
            ('canary:Env-v0', '', 'no module to import'),
            ('CartPole-v1', 'canary.Wrapper', "no wrapper 'canary.Wrapper'")):
        settings = as_dict(EnvConfig(env_id=env_id, env_wrappers=wrappers), TrainConfig())
        message = Policy(
            learner_id='stranger', config=json.dumps({**settings, 'env_modules': 'canary'}))

        def is_refused(message=message, answer=answer):
            publisher.publish(message)
            return answer in waiting.output

        waiting.wait_for(is_refused, answer)
    assert not (tmp_path / 'imported').exists()
    waiting.interrupt()
    assert waiting.wait() == 0, waiting.output


BROKEN = """
import gymnasium
import numpy as np


class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


gymnasium.register('test/Broken-v0', Broken)
"""


def test_an_observation_of_a_wrong_shape_ends_the_training_with_one_line(
        launch, tmp_path, monkeypatch):
    (tmp_path / 'broken.py').write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    training = launch('ros2', 'launch', 'vdl_ros', 'train.launch.py', 'env_modules:=broken',
                      'env_id:=test/Broken-v0', 'num_actors:=1', 'run_dir:=run',
                      env=with_folder(tmp_path))
    assert training.wait() == 1, training.output
    assert ('actor: env_id: test/Broken-v0: the observation of step() has the shape (3,), its '
            'space has (4,)') in training.output
    assert 'Traceback' not in training.output

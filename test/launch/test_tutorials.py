"""The tutorials of the commands, as a reader copies them: every file and every bash block."""

import json
import os
import re
from pathlib import Path

import pytest

from vdl_ros.common.settings import as_dict
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.rl.settings import TrainConfig
from vdl_ros.ros import qos

# Trainings of a reader take longer than other tests.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / 'docs' / 'tutorials'
REFUSED = ("policy refused, waiting for another: env_id: no environment 'tutorial/Walk-v0' on "
           'this host; the module that registers it is named by env_modules:=MODULE with ros2 ')


def blocks(text, language):
    return re.findall(rf'^```{language}\n(.*?)^```', text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def follow(launch, tmp_path, monkeypatch):
    """Return a function that follows a page in an empty folder, and returns what is printed."""
    monkeypatch.chdir(tmp_path)
    # Where a cluster puts its runs and notes.
    monkeypatch.setenv('HOME', str(tmp_path))

    def follow(page, *shorter):
        text = (TUTORIALS / page).read_text()
        for shown, replacement in shorter:
            assert shown in text
            text = text.replace(shown, replacement)
        for name, content in re.findall(
                r'to `(\S+)`[^\n]*\n\n```(?:yaml|text)\n(.*?)^```', text,
                re.MULTILINE | re.DOTALL):
            (tmp_path / name).write_text(content)
        reader = launch('bash', '-e', '-c', '\n'.join(blocks(text, 'bash')))
        assert reader.wait(1500.0) == 0, reader.output
        return reader.output
    return follow


def summary(folder):
    return json.loads((Path(folder) / 'summary.json').read_text())


def test_get_started_trains_evaluates_and_repeats(follow):
    output = follow('get_started.md')
    assert [summary(f'runs/{name}')['ended_by'] for name in ('one', 'two', 'local')] == [
        'stop_at_return'] * 3
    mean, = re.findall(r'20 episodes: mean ([\d.]+),', output)
    # At random about 20. The last updates may have made it worse than in the episodes before.
    assert float(mean) > 100
    for name in ('one.mp4', 'curves.png'):
        assert Path(name).stat().st_size > 1000


def test_several_hosts_trains_by_a_hosts_file(follow):
    follow('several_hosts.md')
    run, = Path('runs').glob('lab-*')
    assert summary(run)['ended_by'] == 'stop_at_return'


def test_experiments_searches_and_shows_the_best(follow):
    follow('experiments.md', ('total_steps: 20000', 'total_steps: 4000'))
    search = Path('runs/pole/ppo/search')
    assert json.loads((search / 'experiment.json').read_text())['complete']
    assert (search / 'index.html').stat().st_size > 10_000
    assert len(list(search.glob('trial-*/session-*/enjoy.mp4'))) == 1
    assert summary('runs/again')['agent_steps'] >= 4000


def test_attacks_lose_what_noise_does_not(follow):
    output = follow('attacks.md', ('total_steps:=300000', 'total_steps:=20000'))
    lost = [-float(each) for each in re.findall(r'of the return ([-+\d.]+)', output)]
    assert len(lost) == 4
    assert lost[0] < 10 < 30 < lost[1]
    assert lost[2] > 30


def test_the_arm_is_trained_and_exported(follow):
    # test_algorithms.py goes on until it reaches.
    output = follow('arm.md', ('total_steps:=600000', 'total_steps:=40000'))
    assert re.search(r'100 episodes: mean .* success \d+%', output)
    assert Path('reach.onnx').stat().st_size > 10_000


def test_demonstrations_are_recorded_exported_cloned_and_made_better(follow):
    output = follow(
        'demonstrations.md',
        # A busy machine starts slowly, and may end a move because it stood still.
        ('arm.launch.py view:=false camera:=none > arm.log &',
         'arm.launch.py goal_timeout:=60.0 view:=false camera:=none > arm.log &\n'
         'until grep -q "simulated arm ready" arm.log; do sleep 0.2; done'),
        ('ros2 run vdl_ros go_to $place >&2 && echo y || echo n',
         'until ros2 run vdl_ros go_to $place >&2; do :; done; echo y'))
    assert output.count('saved as a success') == 5
    info = json.loads(Path('data/demos/meta/info.json').read_text())
    # A busy machine may leave a gap in an episode, which divides it.
    assert info['total_episodes'] >= 5
    success = int(re.search(r'40 episodes: mean .* success (\d+)%', output)[1])
    assert success > 30
    assert summary('runs/better')['agent_steps'] >= 100_000


def test_your_robot_trains_and_evaluates(follow, tmp_path):
    text = (TUTORIALS / 'your_robot.md').read_text()
    for language, name in (('yaml', 'diff_drive.yaml'), ('python', 'drive.py')):
        shown, = blocks(text, language)
        (tmp_path / name).write_text(shown)
    # Half way to what the page shows, for time.
    output = follow('your_robot.md', ('stop_at_return:=13', 'stop_at_return:=6'), ('=100', '=24'))
    found = summary('runs/drive')
    assert found['ended_by'] == 'stop_at_return'
    assert found['agent_steps'] > 1000
    assert Path('runs/drive/curve.png').stat().st_size > 10_000
    # A random policy reaches one place in seven by chance.
    success, = re.findall(r'24 episodes: mean .* success (\d+)%', output)
    assert int(success) > 25


def test_a_script_teaches_robots(follow):
    follow('teach.md')
    found = summary('runs/taught')
    assert found['agent_steps'] >= 6000
    # A busy machine makes actions late.
    assert found['success_rate_100'] > 0.5
    assert Path('mine/corner.yaml').exists()


def test_your_environment_trains_evaluates_and_goes_on_and_an_actor_without_it_waits(
        follow, launch, peer, tmp_path, monkeypatch):
    text = (TUTORIALS / 'your_environment.md').read_text()
    module, = blocks(text, 'python')
    (tmp_path / 'walk.py').write_text(module)
    # As on a host whose user has not named the module.
    (tmp_path / 'canary.py').write_text("open('imported', 'w').close()\n")
    path = f'{tmp_path}{os.pathsep}{os.environ.get("PYTHONPATH", "")}'
    monkeypatch.chdir(tmp_path)
    waiting = launch.node('actor', env=os.environ | {'PYTHONPATH': path})
    waiting.wait_for(lambda: 'waiting for a policy' in waiting.output, 'the actor')
    output = follow('your_environment.md')
    first, slippery = summary('runs/walk'), summary('runs/slippery')
    assert first['ended_by'] == slippery['ended_by'] == 'stop_at_return'
    assert first['success_rate_100'] > 0.9
    assert Path('runs/walk/curve.png').stat().st_size > 10_000
    # The most likely actions may go in circles for some goals.
    success, = re.findall(r'100 episodes: mean .* success (\d+)%', output)
    assert int(success) > 60
    assert Path('walk.mp4').stat().st_size > 1000
    # With other weights it needs more than the first run, for the ground is slippery.
    assert slippery['agent_steps'] < first['agent_steps']

    # The actor may have missed trainings of seconds. Now the learners are gone, and a stranger
    # names this environment, then modules that this host could import.
    assert REFUSED in text
    publisher = qos.pub(peer.node, 'policy')
    for env_id, wrappers, answer in (
            ('tutorial/Walk-v0', '', REFUSED),
            ('canary:Env-v0', '', 'no module to import'),
            ('CartPole-v1', 'canary.Wrapper', "no wrapper 'canary.Wrapper'")):
        settings = as_dict(EnvConfig(env_id=env_id, env_wrappers=wrappers), TrainConfig())
        message = Policy(
            learner_id='stranger', config=json.dumps({**settings, 'env_modules': 'canary'}))
        peer.until(lambda answer=answer: answer in waiting.output, answer, every=0.1,
                   say=lambda message=message: publisher.publish(message))
    assert not Path('imported').exists()
    waiting.stop()

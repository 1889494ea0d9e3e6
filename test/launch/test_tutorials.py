"""The tutorials of the commands, as a reader copies them: every file and every bash block."""

import json
import re
from pathlib import Path

import pytest

# Trainings of a reader take longer than other tests.
pytestmark = pytest.mark.timeout(1800)
TUTORIALS = Path(__file__).resolve().parents[2] / 'docs' / 'tutorials'


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
        blocks = re.findall(r'^```bash\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
        reader = launch('bash', '-e', '-c', '\n'.join(blocks))
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
    lost = [float(each) for each in re.findall(r'return lost ([-\d.]+)', output)]
    assert len(lost) == 4
    assert lost[0] < 10 < 30 < lost[1]
    assert lost[2] > 30


def test_the_arm_is_trained_and_exported(follow):
    # test_reach_is_learned.py goes on until it reaches.
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

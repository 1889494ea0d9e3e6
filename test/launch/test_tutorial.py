"""The tutorial of an own environment, as a reader copies it; an actor without the module waits."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'tutorials' / 'your_environment.md'
REFUSED = ("policy refused, waiting for another: env_id: no environment 'tutorial/Walk-v0' on "
           'this host, whose env_modules register others')


def test_the_commands_of_the_tutorial_train_evaluate_and_go_on(launch, tmp_path, monkeypatch):
    text = PAGE.read_text()
    module, = re.findall(r'^```python\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    commands = re.findall(r'^```bash\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    assert len(commands) == 3
    (tmp_path / 'walk.py').write_text(module)
    monkeypatch.chdir(tmp_path)
    # As on a host that has not the module.
    stranger = launch('ros2', 'run', 'vdl_ros', 'actor')
    reader = launch('bash', '-e', '-c', '\n'.join(commands))
    assert reader.wait() == 0, reader.output

    summary = json.loads((tmp_path / 'runs/walk/summary.json').read_text())
    assert summary['ended_by'] == 'stop_at_return'
    assert summary['success_rate_100'] > 0.9
    assert (tmp_path / 'runs/walk/curve.png').stat().st_size > 10_000
    # The most likely actions may go in circles for some goals.
    success, = re.findall(r'100 episodes: mean .* success (\d+)%', reader.output)
    assert int(success) > 80
    assert (tmp_path / 'walk.mp4').stat().st_size > 1000
    slippery = json.loads((tmp_path / 'runs/slippery/summary.json').read_text())
    assert slippery['ended_by'] == 'stop_at_return'
    # With other weights it needs more than the first run, for the ground is slippery.
    assert slippery['agent_steps'] < summary['agent_steps']

    assert stranger.output.count('policy refused') == stranger.output.count(REFUSED) == 1
    assert REFUSED in text
    assert stranger.process.poll() is None
    stranger.interrupt()
    assert stranger.wait() == 0, stranger.output

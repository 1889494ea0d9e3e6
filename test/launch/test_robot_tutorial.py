"""The tutorial of an own robot, as a reader copies it."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs' / 'tutorials' / 'your_robot.md'
EXAMPLE = ROOT / 'examples' / 'diff_drive'


def blocks(language):
    return re.findall(rf'^```{language}\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_files_of_the_tutorial_are_those_of_the_example():
    assert blocks('yaml') == [(EXAMPLE / 'diff_drive.yaml').read_text()]
    assert blocks('python') == [(EXAMPLE / 'drive.py').read_text()]


@pytest.mark.timeout(1800)
def test_the_commands_of_the_tutorial_train_and_evaluate(launch, tmp_path, monkeypatch):
    commands = '\n'.join(blocks('bash'))
    # Half way to what the page shows, for time.
    for shown, shorter in (('stop_at_return:=13', 'stop_at_return:=6'), ('=100', '=24')):
        assert shown in commands
        commands = commands.replace(shown, shorter)
    (tmp_path / 'diff_drive.yaml').write_text(blocks('yaml')[0])
    (tmp_path / 'drive.py').write_text(blocks('python')[0])
    monkeypatch.chdir(tmp_path)
    reader = launch('bash', '-e', '-c', commands)
    assert reader.wait(1500.0) == 0, reader.output
    summary = json.loads((tmp_path / 'runs/drive/summary.json').read_text())
    assert summary['ended_by'] == 'stop_at_return'
    assert summary['agent_steps'] > 1000
    assert (tmp_path / 'runs/drive/curve.png').stat().st_size > 10_000
    # A random policy reaches one place in seven by chance.
    success, = re.findall(r'24 episodes: mean .* success (\d+)%', reader.output)
    assert int(success) > 25

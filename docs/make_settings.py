"""Write docs/settings.md from the dataclasses that declare the settings."""

from __future__ import annotations

from pathlib import Path

from vdl_ros.envs.config import EnvConfig
from vdl_ros.rl.config import ActorConfig, EvaluateConfig, RunConfig, TrainConfig
from vdl_ros.ros.process import ProcessConfig
from vdl_ros.ros.recording import RecordConfig
from vdl_ros.settings import settings_of

PAGES = (
    ('The environment', EnvConfig,
     'Launch arguments of `train.launch.py` and `learner.launch.py`, parameters of `learner`, '
     'options of `python -m vdl_ros.serial`. Actors hear them from the learner.'),
    ('Learning', TrainConfig, 'Where the environment is, and sent to the actors with it.'),
    ('The run', RunConfig,
     'Launch arguments of `train.launch.py` and `learner.launch.py`, parameters of `learner`.'),
    ('One actor', ActorConfig, 'Launch arguments of `actors.launch.py`, parameters of `actor`.'),
    ('Evaluation', EvaluateConfig,
     'Launch arguments of `evaluate.launch.py`, parameters of `evaluate`.'),
    ('Recording', RecordConfig, 'Parameters of `recorder`.'),
    ('Every node', ProcessConfig, ''),
)


def page() -> str:
    """Return the page."""
    lines = ['# Settings', '',
             'Written by `python3 docs/make_settings.py` from the code; do not edit.', '',
             'On the command line a launch argument is `name:=value` and a parameter '
             '`-p name:=value`. A task\'s preset in `config/tasks` stands between the defaults '
             'here and what you say.', '']
    for title, cls, where in PAGES:
        lines += [f'## {title}', '']
        if where:
            lines += [where, '']
        lines += ['| name | default | allowed | what it is |', '|---|---|---|---|']
        for each in settings_of(cls).values():
            unit = f'; {each.unit}' if each.unit else ''
            default = str(each.default).lower() if each.type is bool else repr(each.default)
            lines.append(f'| `{each.name}` | `{default}` | {each.allowed}{unit} | {each.doc} |')
        lines.append('')
    return '\n'.join(lines)


if __name__ == '__main__':
    Path(__file__).with_name('settings.md').write_text(page())

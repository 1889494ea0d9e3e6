"""Write docs/settings.md from the dataclasses that declare settings."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from vdl_ros.arm.calibration.moves import CalibrateConfig
from vdl_ros.arm.control.controller import ControllerConfig
from vdl_ros.arm.driver.driver import SafetyConfig, UsbConfig
from vdl_ros.arm.geometry import GeometryConfig
from vdl_ros.arm.simulation.motor_model import SimulationConfig
from vdl_ros.arm.teleop.teleop import TeleopConfig
from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.camera.camera_config import CameraConfig, CameraPlacement, ImageTransportConfig
from vdl_ros.cluster.plan import ClusterConfig
from vdl_ros.common.settings import Setting, settings_of
from vdl_ros.envs.env_config import EnvConfig, EnvModulesConfig
from vdl_ros.experiments.spec import MetaConfig, ReferenceConfig, SearchConfig
from vdl_ros.rl.runs.run_config import RunConfig, RunFolderConfig
from vdl_ros.rl.settings import (
    ALGORITHM_SETTINGS,
    ActingConfig,
    ActorConfig,
    DemonstrationsConfig,
    EvaluateConfig,
    ReplayConfig,
    TrainConfig,
)
from vdl_ros.ros.node_settings import (
    BlackBoxConfig,
    CaptureConfig,
    PlayConfig,
    PolicyRendererConfig,
    PoseConfig,
    PoseModelConfig,
    ProcessConfig,
    RecordConfig,
    RobotPolicyConfig,
    RobotStateConfig,
    SimArmConfig,
    TopicStatsConfig,
    TrainingViewerConfig,
    TwinConfig,
    ViewConfig,
    WorldActorConfig,
)

LOCAL = '`python -m vdl_ros.local_training`'
SAME = 'Given in the same places as [the environment](#the-environment)'
# Title, where its settings are given, and groups of settings, which are named in the table.
PAGES = (
    ('The environment',
     'Launch arguments of `train.launch.py`, `learner.launch.py`; parameters of `learner`; '
     f'options of {LOCAL}. Actors get them from the learner.', (('', EnvConfig),)),
    ('Environments of this host',
     'Each host has its own ([environments.md](environments.md)). Arguments of `train`, '
     '`learner`, `actors` and `evaluate.launch.py`; parameters of nodes with environments; '
     f'options of {LOCAL}.', (('', EnvModulesConfig),)),
    ('Learning', f'{SAME}.', (('', TrainConfig),)),
    ('Learning by one algorithm', f'{SAME}, with this `algorithm`.', (
        ('`dqn` and `sac`', ReplayConfig), ('`sac` and `bc`', DemonstrationsConfig),
        *((f'`{name}`', settings) for name, settings in ALGORITHM_SETTINGS.items()))),
    ('An attack',
     f'{SAME}; also arguments of `evaluate.launch.py`, `arm.launch.py`, parameters of '
     '`evaluate`, `attacker` ([attacks.md](attacks.md)). Each host has its own '
     '`adversarial_checkpoint`: not of `learner`, but of `actors.launch.py`, `actor` and '
     '`evaluator`.',
     (('', AttackConfig), ('', SurrogateConfig))),
    ('An experiment', 'Parts of a spec ([experiments.md](experiments.md)).', (
        ('`meta`', MetaConfig), ('`search`', SearchConfig),
        ('`reference`, for environments that are not in `config/reference_returns.yaml`',
         ReferenceConfig))),
    ('The run',
     'Launch arguments of `train.launch.py`, `learner.launch.py`; parameters of `learner`; '
     f'`run_dir`, `resume`, `init` and the second part also options of {LOCAL} '
     '([runs.md](runs.md)).',
     (('', RunConfig), ('the folder', RunFolderConfig))),
    ('A cluster',
     'Arguments of `cluster.launch.py` and `cluster`, which also take those of learning and of '
     'the run ([cluster.md](cluster.md)).', (('', ClusterConfig),)),
    ('Watching a run',
     'Launch arguments of `train.launch.py`, parameters of nodes ([watching.md](watching.md)).',
     (('`training_viewer`', TrainingViewerConfig), ('`policy_renderer`', PolicyRendererConfig))),
    ('Actors', 'Parameters; those of `actor` also launch arguments of `actors.launch.py`.',
     (('`actor` and `world_actor`', ActingConfig), ('`actor`', ActorConfig),
      ('`world_actor`', WorldActorConfig))),
    ('Evaluation', 'Launch arguments of `evaluate.launch.py`, parameters of `evaluate`.',
     (('', EvaluateConfig),)),
    ('Recording and playing', 'Parameters.',
     (('`recorder`', RecordConfig), ('`black_box`', BlackBoxConfig), ('`player`', PlayConfig))),
    ('The arm', 'Launch arguments of `arm.launch.py`, parameters of the named nodes.', (
        ('`sim_arm`, `arm_controller`, `camera`, `robot_state`: the description',
         GeometryConfig),
        ('`arm_driver`, `sim_arm`: when motors are stopped', SafetyConfig),
        ('`arm_driver`: USB', UsbConfig), ('`sim_arm`, `sim_so101`', TwinConfig),
        ('`sim_arm`: time', SimArmConfig),
        ('`sim_arm`: physics', SimulationConfig), ('`arm_controller`', ControllerConfig),
        ('`viewer`', ViewConfig))),
    ('A policy on a robot',
     'Launch arguments of `play.launch.py`, parameters of `play` '
     '([robots.md](robots.md#playing-a-policy)).', (('', RobotPolicyConfig),)),
    ('Camera and pose',
     'Launch arguments of `arm.launch.py`, parameters of the named nodes. The launch argument '
     'for `source` is `camera`; `feedback:=camera` sets `joint_states`.', (
         ('`camera`', CameraConfig), ('`camera`: where it stands', CameraPlacement),
         ('`pose_estimator`, `attacker`, `viewer`', ImageTransportConfig),
         ('`pose_estimator`, `attacker`', PoseModelConfig), ('`pose_estimator`', PoseConfig))),
    ('Capturing', 'Launch arguments of `capture.launch.py`, parameters of `capture`.',
     (('', CaptureConfig),)),
    ('Other nodes', 'Parameters.', (
        ('`calibrate`', CalibrateConfig), ('`robot_state`', RobotStateConfig),
        ('`teleop`', TeleopConfig), ('`topic_stats`', TopicStatsConfig),
        ('every node', ProcessConfig))),
)
HEAD = """# Settings

Written by `python3 docs/make_settings.py` from the code; do not edit.

A launch argument is `name:=value`, a parameter `-p name:=value`. Later ones override earlier ones:

1. the defaults below
2. presets in `config/algorithms` and `config/tasks`
3. a YAML file of `name: value`, with `config:=FILE` (`train`, `learner`, `actors` and \
`cluster.launch.py`, `cluster`, local_training)
4. a ROS parameter file, with `params_file:=FILE` ([nodes.md](nodes.md))
5. arguments

Of `resume` and `init`, the settings of their run stand in for the presets.

Defaults are whole numbers (`16`), numbers (`0.5`), `true` or `false`, texts (`''` is empty), or \
the first one of the named choices.
"""


def allowed(each: Setting) -> str:
    """Return default and unit of a setting, and its range or choices."""
    if each.choices:
        rest = [choice for choice in each.choices if choice != each.default]
        return ', '.join(f'`{choice}`' for choice in (each.default, *rest))
    if each.type in (bool, str):
        return f'`{str(each.default).lower() if each.type is bool else repr(each.default)}`'
    if each.word:
        return f'`{each.word}`, or a number'
    limits = re.sub('^(a|a whole) number(, )?', '', each.allowed)
    limits = re.sub('^ from (.+) to (.+)', r'[\1, \2]', limits)
    return ' '.join(each for each in (f'`{each.default!r}`', each.unit, limits) if each)


def rows(cls: type) -> Iterator[str]:
    """Yield a row for each setting; those of a base class have rows of their own."""
    inherited = settings_of(*(each for each in cls.__bases__ if each is not object))
    above = None
    for name, each in settings_of(cls).items():
        if name not in inherited:
            same = dataclasses.replace(each, name='', default='')
            text = 'as above' if same == above else each.doc
            yield f'| `{name}` | {allowed(each)} | {text} |'
            above = same


def page() -> str:
    lines = [HEAD]
    for title, where, groups in PAGES:
        lines += [f'## {title}', '', where, '', '| name | default [range] | meaning |',
                  '|---|---|---|']
        for label, cls in groups:
            found = [*rows(cls)]
            if found and label:
                lines.append(f'| | | **{label}** |')
            lines += found
        lines.append('')
    return '\n'.join(lines)


if __name__ == '__main__':
    Path(__file__).with_name('settings.md').write_text(page())

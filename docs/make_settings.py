"""Write docs/settings.md and specs/schema.json from the dataclasses that declare settings."""

from __future__ import annotations

import json
from pathlib import Path

from vdl_ros.arm.control.controller_config import ControllerConfig
from vdl_ros.arm.driver.driver_config import SafetyConfig, UsbConfig
from vdl_ros.arm.model.geometry_config import GeometryConfig
from vdl_ros.arm.simulation.simulation_config import SimulationConfig
from vdl_ros.arm.teleop.teleop_config import TeleopConfig
from vdl_ros.attacks.attack_config import AttackConfig, SurrogateConfig
from vdl_ros.camera.camera_config import CameraConfig, CameraPlacement, ImageTransportConfig
from vdl_ros.cluster.cluster_config import ClusterConfig
from vdl_ros.common.settings import settings_of
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.envs.env_modules_config import EnvModulesConfig
from vdl_ros.experiments.specs.schema import json_schema
from vdl_ros.experiments.specs.spec_config import MetaConfig, ReferenceConfig, SearchConfig
from vdl_ros.nodes.calibrate_config import CalibrateConfig
from vdl_ros.nodes.capture_config import CaptureConfig
from vdl_ros.nodes.player_config import PlayConfig
from vdl_ros.nodes.policy_config import PolicyConfig
from vdl_ros.nodes.policy_renderer_config import PolicyRendererConfig
from vdl_ros.nodes.pose_estimator_config import PoseConfig, PoseModelConfig
from vdl_ros.nodes.robot_state_config import RobotStateConfig
from vdl_ros.nodes.sim_arm_config import SimArmConfig
from vdl_ros.nodes.topic_stats_config import TopicStatsConfig
from vdl_ros.nodes.training_viewer_config import TrainingViewerConfig
from vdl_ros.nodes.viewer_config import ViewConfig
from vdl_ros.nodes.world_actor_config import WorldActorConfig
from vdl_ros.rl.acting.actor_config import ActorConfig
from vdl_ros.rl.acting.evaluation_config import EvaluateConfig
from vdl_ros.rl.algorithm_config import ALGORITHM_SETTINGS
from vdl_ros.rl.runs.run_config import RunConfig
from vdl_ros.rl.runs.run_folder_config import RunFolderConfig
from vdl_ros.rl.train_config import TrainConfig
from vdl_ros.ros.bags.recording_config import RecordConfig
from vdl_ros.ros.process_config import ProcessConfig

PAGES = (
    ('The environment', EnvConfig,
     'Launch arguments of `train.launch.py` and `learner.launch.py`, parameters of `learner`, '
     'options of `python -m vdl_ros.local_training`. Actors hear them from the learner.'),
    ('Environments of this host', EnvModulesConfig,
     'Launch argument of `train.launch.py`, `learner.launch.py`, `actors.launch.py` and '
     '`evaluate.launch.py`, parameter of `learner`, `actor`, `world_actor`, `evaluate` and '
     '`evaluator`, option of `python -m vdl_ros.local_training`. See '
     '[environments.md](environments.md).'),
    ('Learning', TrainConfig, 'Where the environment is, and sent to the actors with it.'),
    *((f'Learning by {name}', settings, f'Where `algorithm` is `{name}`; beside those above.')
      for name, settings in ALGORITHM_SETTINGS.items() if settings_of(settings)),
    ('An attack', AttackConfig,
     'Launch arguments of `train.launch.py`, `learner.launch.py`, `evaluate.launch.py` and '
     '`arm.launch.py`, parameters of `learner`, `evaluate` and `attacker`, options of '
     '`python -m vdl_ros.local_training`. Actors hear them from the learner. See '
     '[attacks.md](attacks.md).'),
    ('The network whose gradients an attack uses', SurrogateConfig,
     'Launch argument of `train.launch.py`, `actors.launch.py`, `evaluate.launch.py` and '
     '`arm.launch.py`, parameter of `actor`, `evaluate`, `evaluator` and `attacker`, option of '
     '`python -m vdl_ros.local_training`.'),
    ('An experiment', MetaConfig,
     'The part `meta` of a spec. See [experiments.md](experiments.md).'),
    ('An experiment: how it is searched', SearchConfig, 'The part `search` of a spec.'),
    ('An experiment: what fitness is measured by', ReferenceConfig,
     'The part `reference` of a spec, for environments without an entry in '
     '`config/reference_returns.yaml`.'),
    ('The run', RunConfig,
     'Launch arguments of `train.launch.py` and `learner.launch.py`, parameters of `learner`.'),
    ('The folder of a run', RunFolderConfig,
     'Where the run is, and options of `python -m vdl_ros.local_training`. See '
     '[runs.md](runs.md).'),
    ('A cluster', ClusterConfig,
     'Launch arguments of `cluster.launch.py`, settings of `cluster`, both with those of learning '
     'and of the run. See [cluster.md](cluster.md).'),
    ('Watching a run', TrainingViewerConfig,
     'Launch arguments of `train.launch.py`, with `view`, `tensorboard` and `tensorboard_port` '
     '([watching.md](watching.md)); parameters of `training_viewer`.'),
    ('The policy that is watched', PolicyRendererConfig,
     'Launch arguments of `train.launch.py`, parameters of `policy_renderer`.'),
    ('One actor', ActorConfig, 'Launch arguments of `actors.launch.py`, parameters of `actor`.'),
    ('The actor of several agents', WorldActorConfig, 'Parameters of `world_actor`.'),
    ('Evaluation', EvaluateConfig,
     'Launch arguments of `evaluate.launch.py`, parameters of `evaluate`.'),
    ('Recording', RecordConfig, 'Parameters of `recorder`.'),
    ('Playing', PlayConfig, 'Parameters of `player`.'),
    ('The arm: its description', GeometryConfig,
     'Launch arguments of `arm.launch.py`, as is all of the arm that follows; parameters of '
     '`sim_arm`, `arm_controller`, `policy`, `camera`, `robot_state`.'),
    ('The arm: when motors are stopped', SafetyConfig, 'Parameters of `arm_driver`, `sim_arm`.'),
    ('The arm: USB', UsbConfig, 'Parameters of `arm_driver`.'),
    ('The arm: how the twin is run', SimArmConfig, 'Parameters of `sim_arm`.'),
    ('The arm: what the twin is like', SimulationConfig, 'Parameters of `sim_arm`.'),
    ('The arm: following trajectories', ControllerConfig, 'Parameters of `arm_controller`.'),
    ('The arm: following targets by a policy', PolicyConfig, 'Parameters of `policy`.'),
    ('Calibrating the arm', CalibrateConfig, 'Parameters of `calibrate`.'),
    ('The camera', CameraConfig,
     'Parameters of `camera`; the launch argument for `source` is `camera`.'),
    ('The camera: where it stands', CameraPlacement, 'Parameters of `camera`.'),
    ('Images that are subscribed to', ImageTransportConfig,
     'Launch argument of `arm.launch.py`, parameter of `pose_estimator`, `attacker`, `viewer`.'),
    ('Capturing', CaptureConfig,
     'Launch arguments of `capture.launch.py`, parameters of `capture`.'),
    ('The pose network', PoseModelConfig,
     'Launch arguments of `arm.launch.py`, parameters of `pose_estimator` and `attacker`.'),
    ('Estimating the pose', PoseConfig,
     'Launch arguments of `arm.launch.py`, parameters of `pose_estimator`; `joint_states` is '
     'set by `feedback:=camera`.'),
    ('The frames', RobotStateConfig, 'Parameters of `robot_state`.'),
    ('The view', ViewConfig, 'Parameters of `viewer`.'),
    ('The keyboard', TeleopConfig, 'Parameters of `teleop`.'),
    ('The table of topics', TopicStatsConfig, 'Parameters of `topic_stats`.'),
    ('Every node', ProcessConfig, ''),
)


def page() -> str:
    """Return the page."""
    lines = ['# Settings', '',
             'Written by `python3 docs/make_settings.py` from the code; do not edit.', '',
             'On the command line a launch argument is `name:=value` and a parameter '
             '`-p name:=value`. Presets in `config/algorithms` and `config/tasks` stand between '
             'the defaults here and what you say. `config:=FILE`, an argument of '
             '`train.launch.py`, `learner.launch.py` and `actors.launch.py`, takes settings from '
             'a YAML file of `name: value`; arguments override it.', '']
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


def schema() -> str:
    """Return the JSON Schema of specs."""
    return json.dumps(json_schema(), indent=1) + '\n'


if __name__ == '__main__':
    here = Path(__file__)
    here.with_name('settings.md').write_text(page())
    (here.parents[1] / 'specs' / 'schema.json').write_text(schema())
